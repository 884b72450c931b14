-- People, and the trail of what they did.

-- Keys are what two spellings of a name share. Roles and departments are arrays of JSON.
CREATE TABLE person (
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    email_key TEXT NOT NULL,
    name TEXT NOT NULL,
    email TEXT NOT NULL,
    roles TEXT NOT NULL,
    departments TEXT NOT NULL,
    display TEXT NOT NULL,
    PRIMARY KEY (account, key)
) WITHOUT ROWID;

CREATE UNIQUE INDEX person_email ON person (account, email_key) WHERE email_key <> '';

-- The row id is the order of acts.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    at REAL NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    channel TEXT NOT NULL,
    origin TEXT NOT NULL,
    detail BLOB NOT NULL
);

CREATE INDEX audit_object ON audit (account, object) WHERE object <> '';
CREATE INDEX audit_who ON audit (account, who);

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN
    SELECT raise(ABORT, 'the audit trail is append-only');
END;

CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
BEGIN
    SELECT raise(ABORT, 'the audit trail is append-only');
END;

-- INSERT OR REPLACE would delete without the trigger above.
CREATE TRIGGER audit_is_not_replaced BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
BEGIN
    SELECT raise(ABORT, 'the audit trail is append-only');
END;
