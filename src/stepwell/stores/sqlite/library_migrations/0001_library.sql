-- Published workflows. A row is written once; deleting a version empties `text` and sets `deleted`, so that its number
-- is never given again.

CREATE TABLE library_version (
    account TEXT NOT NULL,
    workflow TEXT NOT NULL,
    number INTEGER NOT NULL,
    definition TEXT NOT NULL,
    content TEXT NOT NULL,
    text TEXT NOT NULL,
    file TEXT NOT NULL,
    label TEXT NOT NULL,
    note TEXT NOT NULL,
    by TEXT NOT NULL,
    at REAL NOT NULL,
    origin TEXT NOT NULL,
    deleted REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (account, workflow, number)
);

CREATE INDEX library_label ON library_version (account, workflow, label, number) WHERE deleted = 0;

-- Recipes that published workflows pinned. The row id is their order: of one label the last counts.
CREATE TABLE library_recipe (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    recipe TEXT NOT NULL,
    version TEXT NOT NULL,
    digest TEXT NOT NULL,
    body BLOB NOT NULL
);

CREATE INDEX library_recipe_label ON library_recipe (account, recipe, version, id);
