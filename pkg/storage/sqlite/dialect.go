package sqlite

// Everything here is SQL. The table kine is kine's
// (https://github.com/k3s-io/kine/blob/v0.16.4/pkg/drivers/sqlite/sqlite.go): a row
// is a change, its id the revision. The columns that kine has beside these stay
// empty. Its indexes are not needed: one of ours holds all columns that decide
// which row counts, so keys are counted without reading a row. kine makes its own
// again if they are missing.
//
// A second table holds what kine does not have: a checksum of each row, and when
// a key ends.

// layout is the version of the tables. A file with another one is refused.
const layout = 1

// create makes the tables in a schema, "main".
func create(schema string) []string {
	return []string{
		`CREATE TABLE ` + schema + `.kine (
			id INTEGER PRIMARY KEY, name TEXT, created INTEGER, deleted INTEGER, create_revision INTEGER,
			prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB)`,
		`CREATE TABLE ` + schema + `.sailplane_row (id INTEGER PRIMARY KEY, sum INTEGER, expires INTEGER)`,
		`CREATE TABLE ` + schema + `.sailplane_meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)`,
	}
}

// index makes the indexes of the tables.
func index(schema string) []string {
	return []string{
		`CREATE INDEX ` + schema + `.sailplane_name ON kine (name, id, deleted)`,
		`CREATE INDEX ` + schema + `.sailplane_row_expires ON sailplane_row (expires) WHERE expires IS NOT NULL`,
	}
}

// firstRow is where kine keeps the revision of the last compaction.
const firstRow = `INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease, value)
	VALUES (1, 'compact_rev_key', 1, 0, 0, 0, 0, '')`

// The names in sailplane_meta.
const (
	metaLayout  = "layout"
	metaClean   = "clean"   // 1: nothing was written since a clean stop
	metaHistory = "history" // its bytes at that stop
	metaSwept   = "swept"   // history was dropped up to this revision
)

const (
	setMeta = `INSERT INTO sailplane_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`
	getMeta = `SELECT name, value FROM sailplane_meta`

	getCurrent   = `SELECT COALESCE(MAX(id), 0) FROM kine`
	getCompacted = `SELECT COALESCE(MAX(prev_revision), 0) FROM kine WHERE name = 'compact_rev_key'`
	raiseTo      = `UPDATE kine SET id = ?, prev_revision = ? WHERE name = 'compact_rev_key' AND (SELECT MAX(id) FROM kine) <= ?`
	setCompacted = `UPDATE kine SET prev_revision = ? WHERE name = 'compact_rev_key'`

	addRow = `INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease, value)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
	addSum = `INSERT INTO sailplane_row (id, sum, expires) VALUES (?, ?, ?)`
)

// columns are the columns of a row k with its checksum s: see row.
const columns = `k.id, k.name, k.created, k.deleted, k.create_revision, k.prev_revision, k.value, s.sum, s.expires`

const (
	// getKey finds the newest row of a key that is not newer than a revision.
	getKey = `SELECT ` + columns + ` FROM kine AS k LEFT JOIN sailplane_row AS s ON s.id = k.id
		WHERE k.name = ? AND k.id <= ? ORDER BY k.id DESC LIMIT 1`

	// newest has the newest row of each key. The columns beside MAX(id) are of
	// the same row (https://www.sqlite.org/lang_select.html#bareagg).
	newest = `(SELECT name, MAX(id) AS id, deleted FROM kine WHERE name >= ? AND name < ? AND id <= ? GROUP BY name)`

	// list finds the newest row of each key, in the order of the index by which they
	// are grouped. ORDER BY would have SQLite sort: it does not see that the rows are
	// in order. So the reader checks the order.
	list = `SELECT ` + columns + ` FROM ` + newest + ` AS m CROSS JOIN kine AS k ON k.id = m.id
		LEFT JOIN sailplane_row AS s ON s.id = k.id
		WHERE m.deleted = 0 AND m.name != 'compact_rev_key' LIMIT ?`

	count = `SELECT COUNT(*) FROM ` + newest + ` WHERE deleted = 0 AND name != 'compact_rev_key'`

	// changes finds the rows of a span in the order of their ids, each with the
	// row before it, whose id is 0 if there is none. The sign makes SQLite search by
	// id, not by name.
	changes = `SELECT ` + columns + `, COALESCE(p.id, 0), COALESCE(p.name, ''), COALESCE(p.created, 0), COALESCE(p.deleted, 0),
		COALESCE(p.create_revision, 0), COALESCE(p.prev_revision, 0), p.value, ps.sum, ps.expires
		FROM kine AS k LEFT JOIN sailplane_row AS s ON s.id = k.id
		LEFT JOIN kine AS p ON p.id = k.prev_revision LEFT JOIN sailplane_row AS ps ON ps.id = p.id
		WHERE k.id > ? AND k.id <= ? AND +k.name >= ? AND +k.name < ? ORDER BY k.id LIMIT ?`

	expiring = `SELECT k.name, k.id, s.expires FROM sailplane_row AS s JOIN kine AS k ON k.id = s.id WHERE s.expires IS NOT NULL`

	// victims are the rows that some revisions made history: the rows they
	// replaced, and marks of deletion.
	victims = `(SELECT prev_revision FROM kine WHERE id > ? AND id <= ? AND prev_revision > 0 AND name != 'compact_rev_key'
		UNION SELECT id FROM kine WHERE id > ? AND id <= ? AND deleted != 0)`
	weighVictims   = `SELECT COALESCE(SUM(LENGTH(name) + COALESCE(LENGTH(value), 0)), 0), COUNT(*) FROM kine WHERE id IN ` + victims
	dropVictims    = `DELETE FROM kine WHERE id IN ` + victims
	dropVictimSums = `DELETE FROM sailplane_row WHERE id IN ` + victims

	// stepEnd finds the last of the next rows after a revision: revisions without a row
	// cost a compaction nothing.
	stepEnd = `SELECT COALESCE(MAX(id), 0), COUNT(*) FROM (SELECT id FROM kine WHERE id > ? AND id <= ? ORDER BY id LIMIT ?)`

	// weighHistory sums up the weight of all victims of later compactions.
	weighHistory = `SELECT COALESCE(SUM(LENGTH(p.name) + COALESCE(LENGTH(p.value), 0)), 0), COUNT(*)
		FROM kine AS k JOIN kine AS p ON p.id = k.prev_revision WHERE k.id > ? AND k.name != 'compact_rev_key'`

	pages = `SELECT page_count, freelist_count, page_size FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()`
)

// lastName sorts after every key: no byte of UTF-8 is as high.
const lastName = "\xff\xff\xff\xff\xff\xff\xff\xff"
