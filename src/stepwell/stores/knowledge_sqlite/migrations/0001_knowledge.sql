-- Documents with all their versions, and the full-text index over the passages of the newest.

CREATE TABLE kb_document (
    id INTEGER PRIMARY KEY,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    collection TEXT NOT NULL,
    version INTEGER NOT NULL,
    UNIQUE (account, name)
);

CREATE INDEX kb_document_collection ON kb_document (account, collection);

CREATE TABLE kb_version (
    document INTEGER NOT NULL REFERENCES kb_document (id) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    account TEXT NOT NULL,
    collection TEXT NOT NULL,
    mode TEXT NOT NULL,
    section TEXT NOT NULL,
    passages INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    origin TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (document, version)
) WITHOUT ROWID;

CREATE UNIQUE INDEX kb_version_key ON kb_version (account, idempotency_key) WHERE idempotency_key <> '';

-- until: the version with which the part is gone; null while it is there.
CREATE TABLE kb_part (
    id INTEGER PRIMARY KEY,
    account TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES kb_document (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    section TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER,
    content TEXT NOT NULL
);

CREATE INDEX kb_part_position ON kb_part (document, position);
CREATE INDEX kb_part_now ON kb_part (document, section) WHERE until IS NULL;

-- The row of kb_index with the same number holds the passage's words.
CREATE TABLE kb_passage (
    id INTEGER PRIMARY KEY,
    account TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES kb_document (id) ON DELETE CASCADE,
    part INTEGER NOT NULL REFERENCES kb_part (id) ON DELETE CASCADE,
    content TEXT NOT NULL
);

CREATE INDEX kb_passage_part ON kb_passage (part);

CREATE VIRTUAL TABLE kb_index USING fts5 (words, tokenize = "unicode61 remove_diacritics 0");
CREATE VIRTUAL TABLE kb_words USING fts5vocab (kb_index, 'row');
