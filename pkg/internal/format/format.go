// Package format names the form of what a storage has: one value beside the objects, which a server
// reads when it starts. It says, too, that a storage is being filled by a copy or from a backup, and
// that no server may use it before that is done.
package format

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
)

// Current is the format that this version writes: where objects lie (package keys), how they are encoded
// (as kube-apiserver does), and what is beside them.
const Current = 1

// Name is what the value is called among those that servers share.
const Name = "format"

// BackupName is what the value with the time of the last backup is called among them.
const BackupName = "backup"

// IsOwn tells whether a key has what a storage says of itself, and no content: what it is a backup or copy of has
// another one.
func IsOwn(prefix, key string) bool {
	return key == Key(prefix) || key == keys.Space{Prefix: prefix}.Shared(BackupName)
}

// Key is where the value is.
func Key(prefix string) string { return keys.Space{Prefix: prefix}.Shared(Name) }

// Stamp is what a storage says of itself.
type Stamp struct {
	// Format is that of what is stored. Versions before there was a stamp wrote format 1.
	Format int `json:"format"`
	// Filling is the copy or restore that is not finished, if there is one.
	Filling *Filling `json:"filling,omitempty"`
}

// Filling is a copy into a storage, or a restore, that is not finished.
type Filling struct {
	// From is what the storage is filled with, in words: "a copy of sqlite file \"state.db\"".
	From string `json:"from"`
	// Begun is when the first run began.
	Begun time.Time `json:"begun"`
	// Run tells a run from others.
	Run string `json:"run"`
}

// Parse reads a stamp; no bytes are that of a version before there was one, or of an empty storage.
func Parse(value []byte) (Stamp, error) {
	s := Stamp{Format: Current}
	if len(value) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(value, &s); err != nil {
		return s, fmt.Errorf("the name of its format cannot be read: %w: is it the storage of another program?", err)
	}
	return s, nil
}

// Bytes is what Parse reads.
func (s Stamp) Bytes() []byte {
	b, _ := json.Marshal(s) // of numbers and strings
	return b
}

// Known returns an error if this version does not know the format.
func (s Stamp) Known() error {
	if s.Format > Current {
		return fmt.Errorf("what is stored has format %d, and this version knows formats up to %d: "+
			"use the version that wrote it, or a newer one", s.Format, Current)
	}
	return nil
}

// Check returns an error if no server of this version may use the storage.
func (s Stamp) Check() error {
	if err := s.Known(); err != nil {
		return err
	}
	if f := s.Filling; f != nil {
		return fmt.Errorf("it was being filled with %s, begun at %s, and is not complete: run the same command again to finish it",
			f.From, f.Begun.Format(time.RFC3339))
	}
	return nil
}
