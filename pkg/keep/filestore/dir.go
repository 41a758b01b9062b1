// Package filestore keeps the objects of a resource as YAML files, one for each object, that people
// and programs may edit.
//
//	apis.Resource[fleetv1.Machine, fleetv1.MachineList]("machines",
//		apis.Kept(&filestore.Dir[fleetv1.Machine]{Path: "machines"}))
//
// The object m1 of the namespace default is the file default/m1.yaml; one that is in no namespace is
// m1.yaml. What is written through the API replaces its file at once, with mode 0600, and without
// the comments that it had. What an editor writes, adds or removes is seen by watchers. A file that
// cannot be read as an object is logged with its name, and the object stays what it was until the
// file is right, which the condition of the resource says as long. If it was none since the server
// started, it is left out, and a get says why.
//
// The version of an object is the time in microseconds when its file was modified, so that it is
// the same after a restart. Changes are known since the start of the server; watches from before
// get 410. One process at a time may write through the API: two do not see whether the other one
// is between comparing a version and writing.
package filestore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// Dir is a keep.Keeper whose objects are files in a directory, which is made when it is first
// used. Its fields must not change then. Required: Path.
type Dir[T any] struct {
	Path string
	// ClusterScoped objects have their files in Path itself.
	ClusterScoped bool
	// History is how many changes are known, for watches that begin there. 0: 10,000.
	History int

	mu         sync.Mutex
	opened     bool
	files      map[keep.Key]*file
	bad        map[string]string // files that are no objects, and why, as it was logged
	changedBad bool              // they may be others than those that the warning is about
	warning    atomic.Pointer[error]
	changes    []change
	version    int64
	oldest     int64 // the version since which all changes are known
	looked     time.Time
	cost       time.Duration // of the last look at all files
}

// file is a file that is an object.
type file struct {
	version int64
	object  json.RawMessage
	broken  error // why it is no object
	info    fs.FileInfo
	sum     [32]byte
	unsure  bool // it may have changed without another time
}

// change is a file that was written or removed.
type change struct {
	key     keep.Key
	version int64
	removed bool
}

const (
	defaultHistory = 10000
	maxBatch       = 1000 // changes that are returned at once
)

// begin has the calls of a keeper one at a time.
func (d *Dir[T]) begin(ctx context.Context) (end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	if err := d.open(ctx); err != nil {
		d.mu.Unlock()
		return nil, err
	}
	return func() {
		d.warn()
		d.mu.Unlock()
	}, nil
}

// warn keeps what Warning returns: what is served in place of files that are no objects any more.
func (d *Dir[T]) warn() {
	if !d.changedBad {
		return
	}
	d.changedBad = false
	n, first := 0, ""
	for path := range d.bad {
		if f := d.files[d.keyAt(path)]; f == nil || f.broken != nil {
			continue // the object is left out, with the reason
		}
		if n++; first == "" || path < first {
			first = path
		}
	}
	if n == 0 {
		d.warning.Store(nil)
		return
	}
	err := fmt.Errorf("%d are not what their files say, which cannot be read: %s", n, d.bad[first])
	d.warning.Store(&err)
}

// Warning implements [keep.Warner].
func (d *Dir[T]) Warning() error {
	if err := d.warning.Load(); err != nil {
		return *err
	}
	return nil
}

// item is a file as an object.
func (d *Dir[T]) item(key keep.Key, f *file) (keep.Item[T], error) {
	item := keep.Item[T]{Object: new(T), Version: f.version, Broken: f.broken}
	if f.broken == nil {
		return item, json.Unmarshal(f.object, item.Object)
	}
	o := any(item.Object).(object)
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	return item, nil
}

// Get implements keep.Keeper.
func (d *Dir[T]) Get(ctx context.Context, key keep.Key) (item keep.Item[T], err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return item, err
	}
	defer end()
	if !d.isKey(key) {
		return item, keep.ErrNotFound
	}
	if err := d.lookAt(ctx, key); err != nil {
		return item, err
	}
	f := d.files[key]
	if f == nil {
		return item, keep.ErrNotFound
	}
	return d.item(key, f)
}

// List implements keep.Keeper.
func (d *Dir[T]) List(ctx context.Context, r keep.Range) (page keep.Page[T], err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return page, err
	}
	defer end()
	if err := d.look(ctx); err != nil {
		return page, err
	}
	var keys []keep.Key
	for key := range d.files {
		if (r.Namespace == "" || r.Namespace == key.Namespace) && key.Compare(r.After) > 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, keep.Key.Compare)
	page.Version = d.version
	if r.Limit > 0 && len(keys) > r.Limit {
		keys, page.More = keys[:r.Limit], true
	}
	for _, key := range keys {
		item, err := d.item(key, d.files[key])
		if err != nil {
			return page, fmt.Errorf("%s: %w", d.path(key), err)
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// Put implements keep.Keeper.
func (d *Dir[T]) Put(ctx context.Context, object *T, ifVersion int64) (int64, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	key, err := d.keyOf(object)
	if err != nil {
		return 0, err
	}
	if err := d.check(ctx, key, ifVersion); err != nil {
		return 0, err
	}
	if why := d.bad[d.path(key)]; why != "" {
		return 0, fmt.Errorf("%s: correct it or delete it first: it would be overwritten", why)
	}
	version := max(d.version+1, time.Now().UnixMicro())
	f, err := d.write(key, object, version)
	if err != nil {
		return 0, err
	}
	d.files[key] = f
	d.note(change{key: key, version: version})
	return version, nil
}

// Remove implements keep.Keeper.
func (d *Dir[T]) Remove(ctx context.Context, key keep.Key, ifVersion int64) (int64, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	if !d.isKey(key) {
		return 0, keep.ErrNotFound
	}
	if err := d.check(ctx, key, ifVersion); err != nil {
		return 0, err
	}
	if err := os.Remove(d.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	delete(d.files, key)
	d.forget(d.path(key))
	version := max(d.version+1, time.Now().UnixMicro())
	d.note(change{key: key, version: version, removed: true})
	return version, nil
}

// check returns the error of a write.
func (d *Dir[T]) check(ctx context.Context, key keep.Key, ifVersion int64) error {
	if err := d.lookAt(ctx, key); err != nil {
		return err
	}
	f := d.files[key]
	switch {
	case f == nil && ifVersion != 0:
		return keep.ErrNotFound
	case f != nil && f.version != ifVersion:
		return keep.ErrConflict
	}
	return nil
}

// note takes in a change.
func (d *Dir[T]) note(c change) {
	d.version = c.version
	d.changes = append(d.changes, c)
	keepN := cmp.Or(d.History, defaultHistory)
	if over := len(d.changes) - keepN; over > keepN/10 {
		d.oldest = d.changes[over-1].version
		d.changes = slices.Clone(d.changes[over:])
	}
}

// Changes implements keep.Keeper.
func (d *Dir[T]) Changes(ctx context.Context, since int64) (b keep.Batch[T], err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return b, err
	}
	defer end()
	if err := d.look(ctx); err != nil {
		return b, err
	}
	if since < d.oldest || since > d.version {
		return b, fmt.Errorf("directory %s has the changes from %d to %d: %w", d.Path, d.oldest, d.version, keep.ErrExpired)
	}
	b.Version = d.version
	first, _ := slices.BinarySearchFunc(d.changes, since+1, func(c change, version int64) int { return cmp.Compare(c.version, version) })
	for _, c := range d.changes[first:] {
		if len(b.Changes) == maxBatch {
			b.Version, b.More = b.Changes[maxBatch-1].Version, true
			break
		}
		change := keep.Change[T]{Key: c.key, Version: c.version}
		if !c.removed {
			f := d.files[c.key]
			if f == nil || f.version != c.version {
				continue // it has changed since
			}
			item, err := d.item(c.key, f)
			if err != nil {
				return b, fmt.Errorf("%s: %w", d.path(c.key), err)
			}
			change.Object, change.Broken = item.Object, item.Broken
		}
		b.Changes = append(b.Changes, change)
	}
	return b, nil
}
