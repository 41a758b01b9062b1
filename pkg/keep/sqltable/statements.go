package sqltable

import (
	"database/sql"
	"fmt"
	"strings"
)

// statements are what a table is read and written with.
type statements struct {
	dialect Dialect
	table   string
	columns []column

	prepared map[string]*sql.Stmt // reads; nil where the driver prepares them itself

	get, list, listNamespace, changes string
	insert, update, remove            string
	versionOf, version                string
}

// placeholder is the nth argument.
func (d Dialect) placeholder(n int) string {
	if d == PostgreSQL {
		return fmt.Sprintf("$%d", n)
	}
	return fmt.Sprintf("?%d", n)
}

// limit is the nth argument as the limit of a statement. SQLite prepares a statement anew for each
// limit, to look whether another plan is better, unless it is an expression.
func (d Dialect) limit(n int) string {
	if d == SQLite {
		return "+" + d.placeholder(n)
	}
	return d.placeholder(n)
}

// bytewise orders text by its bytes.
func (d Dialect) bytewise() string {
	if d == PostgreSQL {
		return ` COLLATE "C"`
	}
	return ""
}

// typeOf is the type of a column.
func (d Dialect) typeOf(k kind) string {
	switch k {
	case integer:
		return "BIGINT"
	case float:
		return "DOUBLE PRECISION"
	case boolean:
		return "BOOLEAN"
	case document:
		if d == PostgreSQL {
			return "JSON" // which, unlike JSONB, leaves it as it is
		}
	case text:
	}
	return "TEXT"
}

func newStatements(d Dialect, table string, columns []column) *statements {
	s := &statements{dialect: d, table: table, columns: columns}
	args := func(from, n int) string {
		var all []string
		for i := range n {
			all = append(all, d.placeholder(from+i))
		}
		return strings.Join(all, ", ")
	}
	names, sets := []string{`"object"`}, []string{`"object" = ` + d.placeholder(3)}
	selected := []string{`"namespace"`, `"name"`, `"resource_version"`, `"object"`}
	for i, c := range columns {
		names = append(names, quoted(c.name))
		sets = append(sets, quoted(c.name)+" = "+d.placeholder(4+i))
		selected = append(selected, quoted(c.name))
	}
	all := strings.Join(selected, ", ")
	of := `m.` + strings.Join(selected, ", m.")
	one := fmt.Sprintf(`"namespace" = %s AND "name" = %s`, d.placeholder(1), d.placeholder(2))
	ifVersion := func(n int) string { return fmt.Sprintf(` AND "resource_version" = %s`, d.placeholder(n)) }
	table, newest, changes := quoted(table), quoted(table+"_version"), quoted(table+"_changes")

	s.get = fmt.Sprintf(`SELECT %s FROM %s WHERE %s`, all, table, one)
	s.versionOf = fmt.Sprintf(`SELECT "resource_version" FROM %s WHERE %s`, table, one)
	s.version = fmt.Sprintf(`SELECT "version" FROM %s`, newest)
	s.insert = fmt.Sprintf(`INSERT INTO %s ("namespace", "name", %s) VALUES (%s) ON CONFLICT DO NOTHING`,
		table, strings.Join(names, ", "), args(1, 2+len(names)))
	s.update = fmt.Sprintf(`UPDATE %s SET %s WHERE %s`, table, strings.Join(sets, ", "), one+ifVersion(3+len(names)))
	s.remove = fmt.Sprintf(`DELETE FROM %s WHERE %s`, table, one+ifVersion(3))
	// Each read is one statement, and so of one time.
	list := func(where, order string, limit int) string {
		return fmt.Sprintf(`SELECT v."version", %s FROM %s v `+
			`LEFT JOIN (SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT %s) m ON 1 = 1 ORDER BY %s`,
			of, newest, all, table, where, order, d.limit(limit), strings.ReplaceAll(order, `"name`, `m."name`))
	}
	s.list = list(s.key()+" > "+d.placeholder(1), s.key(), 2)
	inOne := fmt.Sprintf(`"namespace" = %s AND %s > %s`, d.placeholder(1), s.key(), d.placeholder(2))
	s.listNamespace = list(inOne, `"name"`+d.bytewise(), 3)
	s.changes = fmt.Sprintf(
		`SELECT v."version", %s, c."version", c."namespace", c."name", c."removed", %s FROM %s v `+
			`LEFT JOIN (SELECT * FROM %s WHERE "version" > %s ORDER BY "version" LIMIT %s) c ON 1 = 1 `+
			`LEFT JOIN %s m ON c."removed" = 0 AND m."namespace" = c."namespace" AND m."name" = c."name" `+
			`AND m."resource_version" = c."version" `+
			`ORDER BY c."version"`,
		first, of, newest, changes, d.placeholder(1), d.limit(2), table)
	return s
}

// first is the oldest version whose changes are all known.
const first = `CASE WHEN v."start" > v."version" - v."history" THEN v."start" ELSE v."version" - v."history" END`

// key is the order of objects.
func (s *statements) key() string { return `("namespace" || '/' || "name")` + s.dialect.bytewise() }

// quoted is a name in SQL. It has none but letters, digits and underscores.
func quoted(name string) string { return `"` + name + `"` }

// isolation is that of writes: on PostgreSQL, a write has to see those that it waited for.
func (s *statements) isolation() *sql.TxOptions {
	if s.dialect == PostgreSQL {
		return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	return nil
}
