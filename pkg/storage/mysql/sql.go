package mysql

// Everything here is SQL. The table sailplane_changes has kine's columns
// (https://github.com/k3s-io/kine/blob/v0.17.5/pkg/drivers/mysql/mysql.go): a row is a change, its id
// the revision. Names are bytes here and ASCII there, because a key may hold any byte.

const (
	hasLog = `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'sailplane_log'`

	hasKine = `SELECT COUNT(*) FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name = 'kine' AND table_type = 'BASE TABLE'`
	indexesOfKine = `SELECT DISTINCT index_name FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND table_name = 'kine' AND index_name <> 'PRIMARY'`

	// alter makes a table of kine's one of ours. Its indexes are dropped with it.
	alter = `ALTER TABLE kine RENAME TO sailplane_changes, MODIFY id BIGINT NOT NULL, MODIFY name VARBINARY(1024) NOT NULL,
	MODIFY create_revision BIGINT, MODIFY prev_revision BIGINT, ADD COLUMN expires BIGINT,
	ADD INDEX sailplane_expires (expires), ADD INDEX sailplane_keys (name, id, deleted)`

	// tables makes the tables, and a view that keeps kine from starting beside us. The row of
	// sailplane_log is locked by whoever writes.
	tables = `CREATE TABLE IF NOT EXISTS sailplane_changes (
	id BIGINT NOT NULL PRIMARY KEY, name VARBINARY(1024) NOT NULL, created INTEGER, deleted INTEGER, create_revision BIGINT,
	prev_revision BIGINT, lease INTEGER, value MEDIUMBLOB, old_value MEDIUMBLOB, expires BIGINT,
	INDEX sailplane_expires (expires), INDEX sailplane_keys (name, id, deleted)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE TABLE IF NOT EXISTS sailplane_log (
	one BOOLEAN NOT NULL DEFAULT TRUE PRIMARY KEY, id BIGINT NOT NULL, compacted BIGINT NOT NULL,
	history BIGINT NOT NULL, origin VARCHAR(255) NOT NULL DEFAULT '', layout INTEGER NOT NULL DEFAULT 1) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS sailplane_sweep (
	one BOOLEAN NOT NULL DEFAULT TRUE PRIMARY KEY, swept BIGINT NOT NULL, asked BIGINT NOT NULL) ENGINE = InnoDB;
CREATE OR REPLACE VIEW kine AS SELECT 'Sailplane writes to this database' AS notice;
`
	// begin fills the rows that there is one of, that of sailplane_log last. A log begins at
	// revision 1, as etcd does. What expires has its time again.
	begin = `INSERT INTO sailplane_changes (id, name, created, deleted, create_revision, prev_revision, lease, value)
	SELECT 1, 'compact_rev_key', 1, 0, 0, 0, 0, '' FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM sailplane_changes);
UPDATE sailplane_changes SET expires = (UNIX_TIMESTAMP() + lease) * 1000 WHERE lease > 0 AND deleted = 0 AND expires IS NULL;
INSERT IGNORE INTO sailplane_sweep (swept, asked)
	SELECT GREATEST(COALESCE(MAX(prev_revision), 0) - 1, 0), COALESCE(MAX(prev_revision), 0)
	FROM sailplane_changes WHERE name = 'compact_rev_key';
INSERT INTO sailplane_log (id, compacted, history) SELECT (SELECT MAX(id) FROM sailplane_changes), (SELECT asked FROM sailplane_sweep),
	(SELECT COALESCE(SUM(LENGTH(p.name) + COALESCE(LENGTH(p.value), 0) + 64), 0)
		FROM sailplane_changes k JOIN sailplane_changes p ON p.id = k.prev_revision WHERE k.name <> 'compact_rev_key');
`

	// columns are those of a row k, as scanned by row.
	columns = `k.id, k.name, k.created <> 0, k.deleted <> 0,
		COALESCE(k.create_revision, 0), COALESCE(k.prev_revision, 0), COALESCE(k.expires, 0)`
	// position is where the log stands.
	position = `r.id, r.compacted, r.history`

	// lock begins a transaction. What follows sees what was committed before the lock was there.
	lock = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; SELECT ` + position + ` FROM sailplane_log r FOR UPDATE; `
	// newest is of the newest row of one key.
	newest = `SELECT MAX(id) AS id FROM sailplane_changes WHERE name = ?`
	insert = `INSERT INTO sailplane_changes (id, name, created, deleted, create_revision, prev_revision, lease, value, expires) VALUES `
	commit = `; UPDATE sailplane_log SET id = ?, history = history + ?; COMMIT`

	stands = `SELECT ` + position + ` FROM sailplane_log r`

	get = `SELECT ` + position + `, ` + columns + `, IF(k.id = ?, NULL, k.value) FROM sailplane_log r
		LEFT JOIN sailplane_changes k ON k.id = (SELECT MAX(id) FROM sailplane_changes WHERE name = ? AND id <= ?)`

	// live are the newest rows at a revision of the keys of a span that are not deleted, from the
	// index alone, in its order.
	live = ` FROM sailplane_changes c FORCE INDEX (sailplane_keys) WHERE c.name >= ? AND c.name < ? AND c.id <= ? AND c.deleted = 0
		AND c.name <> 'compact_rev_key'
		AND NOT EXISTS (SELECT 1 FROM sailplane_changes n WHERE n.name = c.name AND n.id > c.id AND n.id <= ?)`

	// list has a row of nulls where it has no other, for the position.
	list = `SELECT ` + position + `, ` + columns + `, IF(?, NULL, k.value) FROM sailplane_log r
		LEFT JOIN (SELECT c.id` + live + ` ORDER BY c.name LIMIT ?) m ON TRUE LEFT JOIN sailplane_changes k ON k.id = m.id`
	count = `SELECT ` + position + `, (SELECT COUNT(*)` + live + `) FROM sailplane_log r`

	// changes has the rows of a span in the order of their ids, each with the row before it.
	changes = `SELECT ` + position + `, ` + columns + `, k.value,
			COALESCE(p.id, 0), COALESCE(p.deleted, 0) <> 0, COALESCE(p.created, 0) <> 0, COALESCE(p.create_revision, 0),
			p.value, COALESCE(p.expires, 0)
		FROM sailplane_log r LEFT JOIN (
			SELECT s.id FROM (SELECT q.id, SUM(q.n) OVER (ORDER BY q.id) - q.n AS earlier FROM (
				SELECT id, COALESCE(LENGTH(value), 0) AS n FROM sailplane_changes FORCE INDEX (PRIMARY)
				WHERE id > ? AND name >= ? AND name < ? ORDER BY id LIMIT ?) q) s WHERE s.earlier < ?) m ON TRUE
		LEFT JOIN sailplane_changes k ON k.id = m.id LEFT JOIN sailplane_changes p ON p.id = k.prev_revision ORDER BY k.id`

	expiring = `SELECT name, id, expires FROM sailplane_changes WHERE expires IS NOT NULL`

	shrink = `OPTIMIZE TABLE sailplane_changes`

	size = `SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name IN ('sailplane_changes', 'sailplane_log')`

	ask           = `UPDATE sailplane_sweep SET asked = ? WHERE asked < ?`
	compact       = `UPDATE sailplane_log SET compacted = GREATEST(compacted, ?)`
	compactOfKine = `UPDATE sailplane_changes SET prev_revision = GREATEST(prev_revision, ?) WHERE name = 'compact_rev_key'`

	// lockSweep fails at once where another server sweeps.
	lockSweep = `SELECT swept FROM sailplane_sweep FOR UPDATE NOWAIT`
	getSwept  = `SELECT swept FROM sailplane_sweep`
	setSwept  = `UPDATE sailplane_sweep SET swept = ?`
	// stepEnd finds the last of the next rows after a revision: revisions without a row cost
	// nothing.
	stepEnd = `SELECT COALESCE(MAX(id), 0), COUNT(*) FROM (SELECT id FROM sailplane_changes WHERE id > ? AND id <= ? ORDER BY id LIMIT ?) n`
	// server is what tells the servers of a database apart, beside the one from which the log is.
	server = `SELECT CAST(@@server_id AS CHAR), origin FROM sailplane_log`
	// moveTo has the log be from a server, and revisions go on far above those of another one. Of
	// two assignments the second sees what the first has done.
	moveTo = `UPDATE sailplane_log SET id = IF(origin = '', id, id + ?), compacted = IF(origin = '', compacted, id), origin = ?
		WHERE origin <> ?`
	skip = `UPDATE sailplane_log SET id = ?, compacted = ? WHERE id < ?`

	// victims are the rows that some revisions made history: the rows they replaced, and marks
	// of deletion.
	victims = `SELECT k.id, LENGTH(k.name) + COALESCE(LENGTH(k.value), 0) + 64 FROM (
			SELECT prev_revision AS id FROM sailplane_changes WHERE id > ? AND id <= ? AND prev_revision > 0 AND name <> 'compact_rev_key'
			UNION SELECT id FROM sailplane_changes WHERE id > ? AND id <= ? AND deleted <> 0) v JOIN sailplane_changes k ON k.id = v.id`
	lighten = `UPDATE sailplane_log SET history = GREATEST(0, history - ?)`
)
