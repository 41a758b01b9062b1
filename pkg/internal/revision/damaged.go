package revision

import (
	"bytes"
	"errors"
)

// damagedMark begins the substitute for a value that a storage cannot read. No
// encoding of an object begins with a zero byte.
const damagedMark = "\x00sailplane:damaged:"

// Damaged is what a storage returns for a value that it cannot read, so that all
// others can still be listed. The decoder finds the reason with [DamageOf].
func Damaged(reason string) []byte { return []byte(damagedMark + reason) }

// DamageOf returns why a storage could not read a value, or nil.
func DamageOf(value []byte) error {
	if reason, found := bytes.CutPrefix(value, []byte(damagedMark)); found {
		return errors.New("the storage is damaged: " + string(reason))
	}
	return nil
}
