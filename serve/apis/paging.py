"""Pages of lists, by the parameters `limit`, `after`, `before` and `order`, in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from ..request_error import RequestError

#: Sizes of a page: without `limit`, and at most.
_DEFAULT, _MOST = 20, 100


def page_of(
    request: Request, items: Sequence[Mapping[str, Any]], default: int = _DEFAULT, most: int = _MOST
) -> dict[str, Any]:
    """Return the page of a list that a request asks for.

    Parameters
    ----------
    items : sequence of dict
        All items, which have an id, the oldest first. A page begins with the newest, unless `order` is "asc".
    default, most : int
        Number of items on a page without `limit`, and the largest `limit`.

    Raises
    ------
    RequestError
        A parameter has a wrong value, or names no item of the list.
    """
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestError("order is asc or desc.", param="order")
    return cut(request, items if order == "asc" else items[::-1], "after", "before", default, most)


def cut(
    request: Request, items: Sequence[Mapping[str, Any]], after: str, before: str, default: int, most: int
) -> dict[str, Any]:
    """Return a page of items that are in order.

    Parameters
    ----------
    after, before : str
        The parameters with the id of the item that the page follows, or precedes.
    """
    limit = _limit(request.query_params.get("limit"), default, most)
    start, stop, ids = 0, len(items), [item["id"] for item in items]
    for name in (after, before):
        if (named := request.query_params.get(name)) is not None:
            if named not in ids:
                raise RequestError(f"{name}: the list has no {named}.", param=name)
            start, stop = (ids.index(named) + 1, stop) if name == after else (start, ids.index(named))
    goes_back = before in request.query_params and after not in request.query_params
    page = items[start:stop][-limit:] if goes_back else items[start:stop][:limit]
    return {
        "object": "list",
        "data": list(page),
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(page) < len(items[start:stop]),
    }


def _limit(stated: str | None, default: int, most: int) -> int:
    if stated is None or stated == "":
        return default
    if not stated.isdecimal() or not 1 <= int(stated) <= most:
        raise RequestError(f"limit is a number from 1 to {most:,}.", param="limit")
    return int(stated)
