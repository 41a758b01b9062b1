package sqlite

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// row is one of the table kine: a change of a key.
type row struct {
	id               int64 // 0: there is no row
	name             string
	created, deleted bool
	createRevision   int64
	prevRevision     int64
	value            []byte
	sum              *int64 // nil: kine wrote the row
	expires          *int64
}

// fields returns pointers for the columns of a query.
func (r *row) fields() []any {
	return []any{&r.id, &r.name, &r.created, &r.deleted, &r.createRevision, &r.prevRevision, &r.value, &r.sum, &r.expires}
}

// isObject tells whether the row is a change of a key. kine fills an unused
// revision with a row "gap-NUMBER".
func (r *row) isObject() bool {
	isGap := r.deleted && r.prevRevision == 0 && strings.HasPrefix(r.name, "gap-")
	return r.name != "compact_rev_key" && !isGap
}

// keyValue returns the state of the key from this row on.
func (r *row) keyValue() *revision.KeyValue {
	kv := &revision.KeyValue{Key: r.name, Value: r.value, Create: r.createRevision, Mod: r.id}
	if r.created {
		kv.Create = r.id
	}
	if r.expires != nil {
		kv.Expires = *r.expires
	}
	if r.sum != nil && *r.sum != r.checksum() {
		kv.Value = revision.Damaged(fmt.Sprintf("row %d of key %s: its checksum is wrong", r.id, r.name))
	}
	return kv
}

// checksum is the CRC-32C of the content of the row.
func (r *row) checksum() int64 {
	var head [27]byte
	binary.LittleEndian.PutUint64(head[0:], uint64(r.id))
	binary.LittleEndian.PutUint64(head[8:], uint64(r.createRevision))
	binary.LittleEndian.PutUint64(head[16:], uint64(r.prevRevision))
	if r.created {
		head[24] = 1
	}
	if r.deleted {
		head[25] = 1
	}
	table := crc32.MakeTable(crc32.Castagnoli) // the library keeps this one
	sum := crc32.Update(crc32.Checksum(head[:], table), table, []byte(r.name))
	return int64(crc32.Update(sum, table, r.value))
}
