package sharing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// folder is that of an authority.
type folder struct {
	path   string
	tokens bool // it has the key for tokens, too
}

const (
	// lastFile has what the files were when they were last the same as in the storage: the
	// SHA-256 of each by name, in JSON. What differs from it was changed here since then.
	lastFile = "shared.json"
	caKey    = "ca.key"
)

// shared are the files that servers have in common, and lists those of PEM blocks of which none is
// ever wrong.
func shared() []string {
	return append([]string{"ca.crt", caKey, "admin.crt", "admin.key", pki.TokenKeyFile}, lists()...)
}

func lists() []string { return []string{"revoked.crl", "issued.crt"} }

// make makes what all servers need and the folder lacks.
func (f folder) make(ctx context.Context) error {
	made, err := pki.Dir(f.path).Ensure(ctx)
	if err != nil {
		return err
	}
	if f.tokens {
		if err := pki.MakeTokenKey(filepath.Join(f.path, pki.TokenKeyFile)); err != nil {
			return err
		}
	}
	if !made {
		return nil
	}
	// Another server may have done so at the same time: what was made a moment ago gives way.
	return pki.Dir(f.path).Change(ctx, append(shared(), lastFile), func(files map[string][]byte) error {
		return remember(files)
	})
}

// content is that of the folder.
type content struct {
	folder folder
	files  map[string][]byte
	last   map[string]string
}

// change locks the folder and writes the files that a function returns.
func (f folder) change(ctx context.Context, decide func(*content) (map[string][]byte, error)) error {
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return err
	}
	return pki.Dir(f.path).Change(ctx, append(shared(), lastFile), func(files map[string][]byte) error {
		c := &content{folder: f, files: files}
		if last, ok := files[lastFile]; ok {
			if err := json.Unmarshal(last, &c.last); err != nil {
				return fmt.Errorf("%s: %w: delete the file", filepath.Join(f.path, lastFile), err)
			}
		}
		merged, err := decide(c)
		if err != nil || merged == nil {
			return err
		}
		for name, data := range merged {
			files[name] = data
		}
		return remember(files)
	})
}

// remember notes that the files are the same as in the storage.
func remember(files map[string][]byte) error {
	last := map[string]string{}
	for _, name := range shared() {
		if data, ok := files[name]; ok {
			last[name] = sum(data)
		}
	}
	content, err := json.Marshal(last)
	files[lastFile] = content
	return err
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// merge returns the files of the folder with the changes that the storage has. Of a file that was
// changed in both, the storage's is taken, but for lists, which get the entries of both.
func (c *content) merge(theirs map[string][]byte) (map[string][]byte, error) {
	merged := map[string][]byte{}
	for _, name := range shared() {
		ours, here := c.files[name]
		their, there := theirs[name]
		last, known := c.last[name]
		switch {
		case !here && !there:
			continue
		case !there, here && known && last == sum(their):
			merged[name] = ours
		case !here, bytes.Equal(ours, their), known && last == sum(ours):
			merged[name] = their
		case slices.Contains(lists(), name):
			merged[name] = union(their, ours)
		case name == caKey && !known:
			return nil, fmt.Errorf("the folder %s has another certificate authority than the storage, "+
				"whose servers do not know its users: "+
				"move it away to take that of the storage", c.folder.path)
		default:
			merged[name] = their
		}
	}
	return merged, nil
}

// union returns the PEM blocks of one file, and those of another that it lacks.
func union(one, other []byte) []byte {
	seen := map[string]bool{}
	var all []byte
	for _, content := range [][]byte{one, other} {
		for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
			if !seen[string(block.Bytes)] {
				seen[string(block.Bytes)] = true
				all = append(all, pem.EncodeToMemory(block)...)
			}
		}
	}
	return all
}

// state changes with the files.
func (f folder) state() ([]byte, error) {
	h := sha256.New()
	for _, name := range shared() {
		data, err := os.ReadFile(filepath.Join(f.path, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		fmt.Fprintf(h, "%s %s\n", name, sum(data))
	}
	return h.Sum(nil), nil
}
