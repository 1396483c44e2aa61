"""The tables and functions of a PostgresStore, as numbered migrations, which go forward only.

A commit is one call of `commit_here`, which is a transaction by itself; or, where it has several parts, a transaction with calls of
`commit_each`. Either first takes note, in the row of its writer, of the number of the commit. That row settles the outcome of a
commit whose connection broke: raising the epoch of the row waits for the transaction, if it is still there, and keeps it
from beginning, if it did not begin. So the number in the row says whether the commit was made, also after a crash of the server.

`ADD` to `DELETE_ALL` are the kinds of changes. A change that cannot be made raises GA409, and a commit that another process has fenced off, GA410.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PUT, ADD, REPLACE, DELETE, REMOVE, EXISTS, DELETE_ALL = range(7)
"""Put, Put(expected=0), Put(expected=n), Delete, Delete(expected=n), Exists, DeleteAll."""
CONFLICT, FENCED, NOT_EMPTY = "GA409", "GA410", "GA411"
"""The states of errors that the functions raise."""

_CHANGES = "kinds smallint[], places bytea[], expected bigint[], versions bigint[], vals bytea[], keys bytea[], paged uuid[], digests bytea[]"

_TABLES = """
CREATE TABLE {s}.migrations (number int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
CREATE TABLE {s}.items (
    place bytea PRIMARY KEY,  -- the key, in bytes that sort as keys do
    version bigint NOT NULL,
    value bytea NOT NULL,     -- of a value that is in pages: its SHA-256
    key bytea,                -- the whole key, where `place` has a hash
    pages uuid                -- where a long value is
) WITH (fillfactor = 90);
CREATE TABLE {s}.pages (id uuid, number int, data bytea NOT NULL, PRIMARY KEY (id, number));
ALTER TABLE {s}.pages ALTER data SET STORAGE EXTERNAL;
CREATE TABLE {s}.writers (
    id uuid PRIMARY KEY,
    epoch bigint NOT NULL,    -- raised by whoever wants no more commits of those who know an earlier one
    made bigint NOT NULL,     -- the number of the writer's last commit
    at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 20);
CREATE TABLE {s}.claims (
    place bytea PRIMARY KEY,
    key bytea,
    holder text NOT NULL,
    fence bigint NOT NULL,
    until bigint NOT NULL,    -- milliseconds UTC
    note bytea NOT NULL
) WITH (fillfactor = 50);
"""

_PAGES = """
CREATE FUNCTION {s}.drop_pages() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {s}.pages WHERE id = OLD.pages;
    RETURN NULL;
END $$;
CREATE TRIGGER drop_pages AFTER UPDATE OF pages OR DELETE ON {s}.items
    FOR EACH ROW WHEN (OLD.pages IS NOT NULL) EXECUTE FUNCTION {s}.drop_pages();
"""

# Each statement sees what others have committed until it begins (READ COMMITTED), and one that changes or locks a row waits for
# whoever has it locked. Where none was found, and none is in the way either, another one was faster: the change is tried again.
_CHANGE = """
CREATE FUNCTION {s}.change({changes}) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c record;
    is_at bigint;
BEGIN
    FOR c IN
        SELECT * FROM unnest(kinds, places, expected, versions, vals, keys, paged, digests)
            WITH ORDINALITY AS c(kind, place, expected, version, value, key, pages, digest, number)
    LOOP
        LOOP
            CASE c.kind
            WHEN 0 THEN
                INSERT INTO {s}.items AS i VALUES (c.place, coalesce(c.version, 1), c.value, c.key, c.pages)
                ON CONFLICT (place) DO UPDATE SET version = coalesce(c.version, i.version + 1), value = c.value, pages = c.pages;
            WHEN 1 THEN
                INSERT INTO {s}.items VALUES (c.place, coalesce(c.version, 1), c.value, c.key, c.pages) ON CONFLICT DO NOTHING;
            WHEN 2 THEN
                UPDATE {s}.items SET version = coalesce(c.version, c.expected + 1), value = c.value, pages = c.pages
                WHERE place = c.place AND version = c.expected
                    AND (c.digest IS NULL OR CASE WHEN pages IS NULL THEN sha256(value) ELSE value END = c.digest);
            WHEN 3 THEN
                DELETE FROM {s}.items WHERE place = c.place;
                EXIT;
            WHEN 4 THEN
                DELETE FROM {s}.items WHERE place = c.place AND version = c.expected;
            WHEN 5 THEN
                IF c.expected IS NULL THEN
                    PERFORM FROM {s}.items WHERE place = c.place FOR KEY SHARE;
                ELSE
                    PERFORM FROM {s}.items WHERE place = c.place AND version = c.expected FOR SHARE;
                END IF;
            WHEN 6 THEN  -- again, for what others had not committed when it began
                LOOP
                    DELETE FROM {s}.items WHERE place >= c.place AND place < c.place || '\\xff'::bytea;
                    EXIT WHEN NOT FOUND;
                END LOOP;
                EXIT;
            END CASE;
            EXIT WHEN FOUND;
            SELECT version INTO is_at FROM {s}.items WHERE place = c.place;
            is_at := coalesce(is_at, 0);
            EXIT WHEN c.kind = 4 AND c.expected = 0 AND is_at = 0;
            IF c.digest IS NOT NULL OR is_at <> coalesce(c.expected, CASE WHEN is_at = 0 THEN 1 ELSE is_at END) THEN
                RAISE EXCEPTION 'conflict' USING ERRCODE = 'GA409', DETAIL = c.number || ' ' || is_at;
            END IF;
        END LOOP;
    END LOOP;
END $$;
"""

_COMMITS = """
CREATE FUNCTION {s}.enter(writer uuid, known bigint, commit bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {s}.writers SET made = commit, at = now() WHERE id = writer AND epoch = known;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'fenced off' USING ERRCODE = 'GA410';
    END IF;
END $$;
CREATE FUNCTION {s}.commit_here(writer uuid, known bigint, commit bigint, {changes}) RETURNS void LANGUAGE plpgsql
    SET lock_timeout = '60s' AS $$
BEGIN
    PERFORM {s}.enter(writer, known, commit);
    PERFORM {s}.change(kinds, places, expected, versions, vals, keys, paged, digests);
END $$;
CREATE FUNCTION {s}.lock_all(kinds smallint[], places bytea[]) RETURNS void LANGUAGE plpgsql SET lock_timeout = '60s' AS $$
BEGIN
    -- In the order of keys, so that two transactions do not wait for each other. And all of it before anything is deleted: whoever
    -- relies on the existence of an item that is deleted here is waited for, and what it has put is seen by the deletions.
    PERFORM FROM {s}.items WHERE place IN (
        SELECT c.place FROM unnest(kinds, places) AS c(kind, place) WHERE c.kind NOT IN (1, 6)
        UNION ALL
        SELECT i.place FROM unnest(kinds, places) AS c(kind, place)
            JOIN {s}.items i ON i.place >= c.place AND i.place < c.place || '\\xff'::bytea WHERE c.kind = 6
    ) ORDER BY place FOR UPDATE;
END $$;
-- Makes those commits that can be made, and returns which are not: the number of each, that of the change, and the version found.
CREATE FUNCTION {s}.commit_each(starts int[], {changes}) RETURNS text LANGUAGE plpgsql SET lock_timeout = '60s' AS $$
DECLARE
    a int;
    z int;
    found_at text;
    conflicts text[];
BEGIN
    FOR job IN 1 .. cardinality(starts) LOOP
        a := starts[job];
        z := coalesce(starts[job + 1], cardinality(kinds) + 1) - 1;
        BEGIN
            PERFORM {s}.change(
                kinds[a:z], places[a:z], expected[a:z], versions[a:z], vals[a:z], keys[a:z], paged[a:z], digests[a:z]);
        EXCEPTION WHEN SQLSTATE 'GA409' THEN
            GET STACKED DIAGNOSTICS found_at = PG_EXCEPTION_DETAIL;
            conflicts := conflicts || (job || ' ' || found_at);
        END;
    END LOOP;
    RETURN array_to_string(conflicts, ',');
END $$;
"""

# A store is sealed while nobody else commits: those who did not begin find their epoch raised, and those who did are waited for.
_WRITERS = """
CREATE FUNCTION {s}.is_sealed() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM {s}.items WHERE place = '\\x026b00' AND substr(value, 1, 7) = '\\x67616b65797300')
$$;
CREATE FUNCTION {s}.begin_writer(writer uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({lock});
    DELETE FROM {s}.writers WHERE id IN
        (SELECT id FROM {s}.writers WHERE at < now() - interval '7 days' ORDER BY id FOR UPDATE SKIP LOCKED);
    INSERT INTO {s}.writers VALUES (writer, 1, 0);
    RETURN {s}.is_sealed();
END $$;
CREATE FUNCTION {s}.settle(writer uuid) RETURNS TABLE (epoch bigint, made bigint) LANGUAGE sql SET lock_timeout = '60s' AS $$
    UPDATE {s}.writers w SET epoch = w.epoch + 1, at = now() WHERE w.id = writer RETURNING w.epoch, w.made
$$;
CREATE FUNCTION {s}.begin_sealing(writer uuid) RETURNS void LANGUAGE plpgsql SET lock_timeout = '60s' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock({lock});
    PERFORM FROM {s}.writers WHERE id <> writer ORDER BY id FOR UPDATE;
    UPDATE {s}.writers SET epoch = epoch + 1 WHERE id <> writer;
    IF EXISTS (SELECT FROM {s}.items) THEN
        RAISE EXCEPTION 'not empty' USING ERRCODE = 'GA411';
    END IF;
END $$;
"""

# A time that a test fixes is in the place of the server's. Each function is called by a statement that is a transaction by itself.
_CLAIMS = """
CREATE FUNCTION {s}.now_ms(fixed bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(fixed, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;
CREATE FUNCTION {s}.take(fixed bigint, what bytea, whole bytea, who text, lease bigint, after bigint, told bytea, again bigint)
    RETURNS TABLE (number bigint, ends bigint) LANGUAGE plpgsql AS $$
DECLARE
    at bigint := {s}.now_ms(fixed);
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN QUERY
        INSERT INTO {s}.claims AS c VALUES (what, whole, who, after + 1, at + lease, told)
        ON CONFLICT (place) DO UPDATE SET holder = who, fence = greatest(c.fence, after) + 1, until = at + lease, note = told
            WHERE c.until <= at OR c.fence <= after OR (again = 1 AND c.holder = who)
        RETURNING c.fence, c.until;
END $$;
CREATE FUNCTION {s}.renew(places bytea[], holders text[], fences bigint[], lease bigint, fixed bigint) RETURNS SETOF bytea
    LANGUAGE plpgsql AS $$
DECLARE
    at bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM {s}.claims WHERE place = ANY (places) ORDER BY place FOR NO KEY UPDATE;
    at := {s}.now_ms(fixed);
    RETURN QUERY
        UPDATE {s}.claims c SET until = at + lease FROM unnest(places, holders, fences) AS r(place, holder, fence)
        WHERE c.place = r.place AND c.holder = r.holder AND c.fence = r.fence AND c.until > at RETURNING c.place;
END $$;
CREATE FUNCTION {s}.release(places bytea[], holders text[], fences bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM {s}.claims WHERE place = ANY (places) ORDER BY place FOR UPDATE;
    DELETE FROM {s}.claims c USING unnest(places, holders, fences) AS r(place, holder, fence)
        WHERE c.place = r.place AND c.holder = r.holder AND c.fence = r.fence;
END $$;
"""

MIGRATIONS: Sequence[str] = (_TABLES + _PAGES + _CHANGE + _COMMITS + _WRITERS + _CLAIMS,)
"""The statements that lead from each number of migrations to the next."""


def statements(number: int, schema: str, lock: str) -> str:
    """Return the statements of a migration.

    Args:
        number: Which one, from 1 on.
        schema: The quoted name of the schema.
        lock: The arguments of the advisory lock of the schema.
    """
    words = {"s": schema, "changes": _CHANGES, "lock": lock}
    return re.sub(r"\{(s|changes|lock)\}", lambda found: words[found[1]], MIGRATIONS[number - 1])
