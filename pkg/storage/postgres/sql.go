package postgres

// Everything here is SQL. The table sailplane_changes has kine's columns
// (https://github.com/k3s-io/kine/blob/v0.17.5/pkg/drivers/pgsql/pgsql.go): a row is a change, its id
// the revision. Names are bytes here and text there, because a key may hold any byte.

const (
	// hasTables looks in the catalog itself: to_regclass may remember that there was no table.
	hasTables = `SELECT COALESCE(bool_or(relname = 'sailplane_log'), false), COALESCE(bool_or(relname = 'kine'), false)
		FROM pg_class WHERE relname IN ('sailplane_log', 'kine') AND relkind IN ('r', 'p') AND pg_table_is_visible(oid)`

	// tables makes the tables, and a view that keeps kine from starting beside us. The row of
	// sailplane_log is locked by whoever writes: no column of it is in an index that changes, and its
	// page has room, so that an update takes no new one. At its default pace vacuum does not keep up
	// with many writes.
	tables = `
CREATE TABLE IF NOT EXISTS sailplane_changes (
	id bigint PRIMARY KEY, name bytea NOT NULL, created integer, deleted integer, create_revision bigint,
	prev_revision bigint, lease integer, value bytea, old_value bytea, expires bigint)
	WITH (` + vacuum + `);
CREATE INDEX IF NOT EXISTS sailplane_keys ON sailplane_changes (name, id DESC, deleted);
CREATE INDEX IF NOT EXISTS sailplane_expires ON sailplane_changes (expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS sailplane_log (
	one boolean PRIMARY KEY DEFAULT true CHECK (one), id bigint NOT NULL, compacted bigint NOT NULL DEFAULT 0,
	history bigint NOT NULL DEFAULT 0, origin text NOT NULL DEFAULT '', layout integer NOT NULL DEFAULT 1)
	WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE IF NOT EXISTS sailplane_sweep (
	one boolean PRIMARY KEY DEFAULT true CHECK (one), swept bigint NOT NULL DEFAULT 0, asked bigint NOT NULL DEFAULT 0);
CREATE OR REPLACE VIEW kine AS SELECT 'Sailplane writes to this database' AS notice;`
	vacuum = `autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0`

	// columns are those of a row k, as scanned by row.
	columns = `k.id, k.name, k.created <> 0, k.deleted <> 0,
		COALESCE(k.create_revision, 0), COALESCE(k.prev_revision, 0), COALESCE(k.expires, 0)`
	// position is where the log stands.
	position = `r.id, r.compacted, r.history`
	// one is its row. PostgreSQL takes a table that it has not looked at yet for one of many rows, and a query that joins
	// it for one that is worth to be compiled, for a third of a second.
	one = `(SELECT * FROM sailplane_log LIMIT 1) r`

	// beginWrite and limitIdle begin a transaction, whatever the session or a pooler has set: each
	// statement sees what was committed before it, and a server that hangs does not keep its lock.
	beginWrite = `BEGIN ISOLATION LEVEL READ COMMITTED`
	limitIdle  = `SET LOCAL idle_in_transaction_session_timeout = '5s'`

	lock = `SELECT ` + position + ` FROM sailplane_log r FOR NO KEY UPDATE`

	// selectNewest has the newest row of each key, without the value of one that is known.
	selectNewest = `SELECT ` + columns + `, CASE WHEN k.id = q.known THEN NULL ELSE k.value END
		FROM unnest($1::bytea[], $2::bigint[]) AS q(name, known)
		JOIN LATERAL (SELECT * FROM sailplane_changes c WHERE c.name = q.name ORDER BY id DESC LIMIT 1) k ON true`

	insert = `INSERT INTO sailplane_changes (id, name, created, deleted, create_revision, prev_revision, lease, value, expires)
		SELECT id, name, created, deleted, created_at, previous, lease, value, NULLIF(expires, 0) FROM
		unnest($1::bigint[], $2::bytea[], $3::int[], $4::int[], $5::bigint[], $6::bigint[], $7::int[], $8::bytea[], $9::bigint[])
		AS r(id, name, created, deleted, created_at, previous, lease, value, expires)`
	advance = `UPDATE sailplane_log SET id = $1, history = history + $2`
	notify  = `SELECT pg_notify($1, $2)`

	channel = `SELECT left('sailplane ' || current_schema(), 63)`

	stands = `SELECT ` + position + ` FROM sailplane_log r`

	get = `SELECT ` + position + `, ` + columns + `, CASE WHEN k.id = $3 THEN NULL ELSE k.value END
		FROM ` + one + ` LEFT JOIN LATERAL (
			SELECT * FROM sailplane_changes c WHERE c.name = $1 AND c.id <= CASE WHEN $2::bigint = 0 THEN r.id ELSE $2 END
			ORDER BY id DESC LIMIT 1) k ON true`

	// list has the newest row of each key that is not deleted. Without a row there is one of nulls, for the position.
	list     = `SELECT ` + position + `, ` + columns + `, k.value` + fromNewest
	listKeys = `SELECT ` + position + `, ` + columns + `, NULL::bytea` + fromNewest
	// fromNewest walks along the index of names, and stops at the limit. PostgreSQL would rather sort all rows of the
	// span for each page; a limit that it does not know, and that is none, has it expect to need a tenth of them.
	fromNewest = ` FROM ` + one + ` LEFT JOIN LATERAL (
			SELECT * FROM (SELECT DISTINCT ON (name) * FROM
				(SELECT * FROM sailplane_changes WHERE name >= $1 AND name < $2
					AND id <= CASE WHEN $3::bigint = 0 THEN r.id ELSE $3 END ORDER BY name, id DESC LIMIT (SELECT NULL::bigint)) AS c
				ORDER BY name, id DESC) AS n
			WHERE n.deleted <> 1 AND n.name <> 'compact_rev_key' ORDER BY n.name LIMIT NULLIF($4::bigint, 0)) k ON true`

	count = `SELECT ` + position + `, (
			SELECT count(*) FROM (SELECT DISTINCT ON (name) name, deleted FROM sailplane_changes WHERE name >= $1 AND name < $2
				AND id <= CASE WHEN $3::bigint = 0 THEN r.id ELSE $3 END ORDER BY name, id DESC) AS n
			WHERE n.deleted = 0 AND n.name <> 'compact_rev_key') FROM ` + one

	// changes has the rows of a span in the order of their ids, each with the row before it. With a bare name PostgreSQL
	// would read all of the index of names for some new rows.
	changes = `SELECT ` + position + `, ` + columns + `, k.value,
			COALESCE(p.id, 0), COALESCE(p.deleted, 0) <> 0, COALESCE(p.created, 0) <> 0, COALESCE(p.create_revision, 0),
			p.value, COALESCE(p.expires, 0)
		FROM ` + one + ` LEFT JOIN LATERAL (
			SELECT * FROM (SELECT q.*, sum(COALESCE(octet_length(value), 0))
					OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
				FROM (SELECT * FROM sailplane_changes WHERE id > $1 AND id <= r.id AND name || '' >= $2 AND name || '' < $3
					ORDER BY id LIMIT $4) AS q) AS s
			WHERE COALESCE(earlier, 0) < $5) k ON true
		LEFT JOIN sailplane_changes p ON p.id = k.prev_revision ORDER BY k.id`

	expiring = `SELECT name, id, expires FROM sailplane_changes WHERE expires IS NOT NULL`

	shrink = `VACUUM (FULL, ANALYZE) sailplane_changes`

	size = `SELECT pg_total_relation_size('sailplane_changes') + pg_total_relation_size('sailplane_log')`

	ask           = `UPDATE sailplane_sweep SET asked = $1 WHERE asked < $1`
	compact       = `UPDATE sailplane_log SET compacted = GREATEST(compacted, $1)`
	compactOfKine = `UPDATE sailplane_changes SET prev_revision = GREATEST(prev_revision, $1) WHERE name = 'compact_rev_key'`

	// lockSweep fails at once where another server sweeps.
	lockSweep = `SELECT swept FROM sailplane_sweep FOR UPDATE NOWAIT`
	getSwept  = `SELECT swept FROM sailplane_sweep`
	setSwept  = `UPDATE sailplane_sweep SET swept = $1`
	// stepEnd finds the last of the next rows after a revision: revisions without a row cost
	// nothing.
	stepEnd = `SELECT COALESCE(max(id), 0), count(*)
		FROM (SELECT id FROM sailplane_changes WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3) AS n`
	// sweep drops the rows that some revisions made history: the rows they replaced, and marks
	// of deletion. It returns their weight.
	sweep = `WITH victims AS (
			SELECT prev_revision AS id FROM sailplane_changes WHERE id > $1 AND id <= $2 AND prev_revision > 0 AND name <> 'compact_rev_key'
			UNION SELECT id FROM sailplane_changes WHERE id > $1 AND id <= $2 AND deleted <> 0),
		gone AS (DELETE FROM sailplane_changes c USING victims WHERE c.id = victims.id
			RETURNING octet_length(c.name) + COALESCE(octet_length(c.value), 0) + 64 AS n)
		SELECT COALESCE(sum(n), 0)::bigint FROM gone`
	lighten = `UPDATE sailplane_log SET history = GREATEST(0, history - $1)`

	// withoutJIT keeps the session from compiling queries, for a third of a second each: a list of 100,000 keys takes less.
	withoutJIT = `SELECT set_config(name, 'off', false) FROM pg_settings WHERE name = 'jit'`

	// timeline is what a database changes when it goes on from a replica or a backup, beside the one
	// from which the log is.
	timeline = `SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8), origin FROM sailplane_log`
	// moveTo has the log be from a timeline, and revisions go on far above those of another.
	moveTo = `UPDATE sailplane_log SET id = CASE origin WHEN '' THEN id ELSE id + $2 END,
		compacted = CASE origin WHEN '' THEN compacted ELSE id + $2 END, origin = $1 WHERE origin <> $1`
	skip = `UPDATE sailplane_log SET id = $1, compacted = $1 WHERE id < $2`

	// upgrade makes the table of kine one of ours.
	upgrade = `
DROP INDEX IF EXISTS kine_name_index, kine_name_id_index, kine_id_deleted_index, kine_prev_revision_index,
	kine_name_prev_revision_uindex, kine_list_query_index;
ALTER TABLE kine RENAME TO sailplane_changes;
ALTER TABLE sailplane_changes ALTER COLUMN id DROP DEFAULT, ALTER COLUMN id TYPE bigint, ALTER COLUMN create_revision TYPE bigint,
	ALTER COLUMN prev_revision TYPE bigint, ALTER COLUMN name TYPE bytea USING convert_to(name, 'UTF8'), ADD COLUMN expires bigint,
	SET (` + vacuum + `);
DROP SEQUENCE IF EXISTS kine_id_seq;
UPDATE sailplane_changes SET expires = (extract(epoch FROM now()) * 1000)::bigint + lease::bigint * 1000 WHERE lease > 0 AND deleted = 0;`

	// begin fills the rows that there is one of. A log begins at revision 1, as etcd does.
	begin = `
INSERT INTO sailplane_changes (id, name, created, deleted, create_revision, prev_revision, lease, value)
	SELECT 1, 'compact_rev_key', 1, 0, 0, 0, 0, '' WHERE NOT EXISTS (SELECT FROM sailplane_changes);
INSERT INTO sailplane_log (id, compacted) SELECT
	(SELECT max(id) FROM sailplane_changes), COALESCE((SELECT max(prev_revision) FROM sailplane_changes WHERE name = 'compact_rev_key'), 0);
INSERT INTO sailplane_sweep (swept, asked) SELECT GREATEST(compacted - 1, 0), compacted FROM sailplane_log;
UPDATE sailplane_log SET history = (SELECT COALESCE(sum(octet_length(p.name) + COALESCE(octet_length(p.value), 0) + 64), 0)
	FROM sailplane_changes k JOIN sailplane_changes p ON p.id = k.prev_revision WHERE k.name <> 'compact_rev_key');`
)
