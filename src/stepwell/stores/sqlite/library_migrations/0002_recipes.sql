-- Recipes published on their own. A label is one row for ever: deleting a version empties it and sets `deleted`, so that
-- no other content gets the label; `place` grows with each publication.

CREATE TABLE library_recipe_version (
    account TEXT NOT NULL,
    recipe TEXT NOT NULL,
    version TEXT NOT NULL,
    place INTEGER NOT NULL,
    digest TEXT NOT NULL,
    content TEXT NOT NULL,
    body BLOB NOT NULL,
    text TEXT NOT NULL,
    file TEXT NOT NULL,
    note TEXT NOT NULL,
    by TEXT NOT NULL,
    at REAL NOT NULL,
    deleted REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (account, recipe, version)
);

CREATE INDEX library_recipe_place ON library_recipe_version (account, recipe, place) WHERE deleted = 0;
