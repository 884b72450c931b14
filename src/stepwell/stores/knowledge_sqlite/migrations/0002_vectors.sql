-- Where passages lie, collections that are described, and vectors.

ALTER TABLE kb_part ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
UPDATE kb_part SET size = length(content);

-- start: its place in the part's content.
ALTER TABLE kb_passage ADD COLUMN start INTEGER NOT NULL DEFAULT 0;
ALTER TABLE kb_passage ADD COLUMN heading TEXT NOT NULL DEFAULT '';
ALTER TABLE kb_passage ADD COLUMN page INTEGER NOT NULL DEFAULT 0;

CREATE TABLE kb_collection (
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL DEFAULT '',
    department TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (account, name)
) WITHOUT ROWID;

-- number: never given again, so that what was read before knows what is new. vector: half-precision numbers.
CREATE TABLE kb_vector (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    document INTEGER NOT NULL,
    passage INTEGER NOT NULL UNIQUE REFERENCES kb_passage (id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    vector BLOB NOT NULL
);

CREATE INDEX kb_vector_account ON kb_vector (account, model, number);

-- Passages that wait for their vectors.
CREATE TABLE kb_backlog (
    passage INTEGER PRIMARY KEY REFERENCES kb_passage (id) ON DELETE CASCADE,
    account TEXT NOT NULL
);

INSERT INTO kb_backlog (passage, account) SELECT id, account FROM kb_passage;
