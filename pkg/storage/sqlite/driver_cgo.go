//go:build cgo

package sqlite

import (
	"database/sql/driver"

	"github.com/mattn/go-sqlite3"
)

// implementation is SQLite itself, in C.
func implementation() driver.Driver { return &sqlite3.SQLiteDriver{} }
