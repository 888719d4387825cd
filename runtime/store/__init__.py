"""Files that octavo keeps: indexes of documents, plans of models, and the folder where a model's files live."""
