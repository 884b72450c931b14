-- Votes, and what happens to an approval while nobody decides it.

-- `rules`: who may decide and how many (JSON); `next_at`: when the next reminder or escalation is due, 0 for never.
ALTER TABLE wait ADD COLUMN rules BLOB;
ALTER TABLE wait ADD COLUMN next_at REAL NOT NULL DEFAULT 0;
CREATE INDEX wait_next ON wait (next_at) WHERE status = 'pending' AND next_at > 0;

-- What one person said to one wait; nobody is counted twice.
CREATE TABLE vote (
    id INTEGER PRIMARY KEY,
    account TEXT NOT NULL,
    wait INTEGER NOT NULL REFERENCES wait (id) ON DELETE CASCADE,
    person TEXT NOT NULL,
    body BLOB NOT NULL,
    at REAL NOT NULL,
    UNIQUE (wait, person)
);
