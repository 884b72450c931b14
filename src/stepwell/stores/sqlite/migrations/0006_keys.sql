-- Keys of people, as digests.

CREATE TABLE person_key (
    account TEXT NOT NULL,
    id TEXT NOT NULL,
    digest TEXT NOT NULL,
    person TEXT NOT NULL,
    note TEXT NOT NULL,
    created REAL NOT NULL,
    revoked REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (account, id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX person_key_digest ON person_key (digest);
