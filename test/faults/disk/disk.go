// Package disk has what a disk keeps when power is lost: it reads the trace of
// a process that strace wrote, and rebuilds the files as they may be found.
//
// What is kept is what a journaling file system promises. The data of a file is
// safe when an fsync of it that began after the write has returned. Names are
// safe, in the order in which they were made, when any fsync that began after
// them has returned. What is not safe may be there or not: see Loss.
package disk

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// page is what a disk writes whole or not at all.
const page = 4096

// Loss is what becomes of data that was not synced.
type Loss string

// What may become of it.
const (
	// None: nothing of it is there.
	None Loss = "none"
	// Prefix: what was written up to some moment is there.
	Prefix Loss = "prefix"
	// Subset: of each page that was written, and of each file's size, chance decides.
	Subset Loss = "subset"
)

// Losses are all of them.
func Losses() []Loss { return []Loss{None, Prefix, Subset} }

// Disk is a directory: what is safe, and what was done to it since.
type Disk struct {
	root  string
	safe  names
	now   names
	todo  []*change // what is not safe yet, in the order in which it was done
	count int       // of changes so far
}

// names are the files of a directory by path, and its directories as nil.
type names map[string]*file

// file is the content of a file that is safe, and the size as programs see it.
type file struct {
	pages map[int64]*[page]byte
	size  int64
	seen  int64 // the size with everything that is not safe yet
}

// change is one thing that was done: to a file, or to names.
type change struct {
	number int
	file   *file             // nil: to names
	rename func(names) error // what it does to names
	offset int64             // of data
	data   []byte            // nil: the size changes
	size   func(int64) int64 // the new size
}

// New makes the disk of an empty directory.
func New(root string) *Disk { return &Disk{root: filepath.Clean(root), safe: names{}, now: names{}} }

// inside says whether a path is below the directory.
func (d *Disk) inside(path string) bool {
	return strings.HasPrefix(path, d.root+string(filepath.Separator))
}

// Write writes data to a file as a program does: nothing of it is safe.
func (d *Disk) Write(f *file, offset int64, data []byte) {
	d.do(&change{file: f, offset: offset, data: data})
	f.seen = max(f.seen, offset+int64(len(data)))
}

// Copy writes a part of a file, as programs see it, to another. What is empty
// is not written: the file grows over it.
func (d *Disk) Copy(to *file, at int64, from *file, offset, length int64) {
	view := &file{pages: map[int64]*[page]byte{}, size: from.size}
	for n, p := range from.pages {
		whole := *p
		view.pages[n] = &whole
	}
	for _, c := range d.todo {
		switch {
		case c.file != from:
		case c.data != nil:
			view.write(c.offset, c.data)
		default:
			view.truncate(c.size(view.size))
		}
	}
	d.resize(to, func(size int64) int64 { return max(size, at+length) })
	for _, n := range slices.Sorted(maps.Keys(view.pages)) {
		begin, end := max(n*page, offset), min(n*page+page, offset+length)
		if begin < end {
			d.Write(to, at+begin-offset, view.pages[n][begin-n*page:end-n*page])
		}
	}
}

func (d *Disk) resize(f *file, size func(int64) int64) {
	d.do(&change{file: f, size: size})
	f.seen = size(f.seen)
}

// name changes names.
func (d *Disk) name(do func(names) error) error {
	d.do(&change{rename: do})
	return do(d.now)
}

func (d *Disk) do(c *change) {
	d.count++
	c.number = d.count
	d.todo = append(d.todo, c)
}

// sync makes safe what was done to a file, and to all names, up to a change.
// A nil file is a directory.
func (d *Disk) sync(f *file, number int) error {
	var still []*change
	for _, c := range d.todo {
		if c.number > number || c.file != nil && c.file != f {
			still = append(still, c)
		} else if err := d.keep(c); err != nil {
			return err
		}
	}
	d.todo = still
	return nil
}

// keep makes a change safe.
func (d *Disk) keep(c *change) error {
	switch {
	case c.file == nil:
		return c.rename(d.safe)
	case c.data == nil:
		c.file.truncate(c.size(c.file.size))
	default:
		c.file.write(c.offset, c.data)
	}
	return nil
}

// Lose loses power: what is not safe is decided, and the disk is what it is
// after that. It returns how many changes were lost, whole or in part.
func (d *Disk) Lose(loss Loss, random *rand.Rand) (lost int, err error) {
	all := d.todo
	d.todo = nil
	until := 0
	if loss != None && len(all) > 0 {
		until = random.IntN(len(all) + 1)
	}
	for i, c := range all {
		whole := loss == Prefix && i < until
		switch {
		case loss == Subset && c.data != nil:
			whole = c.file.writeSome(c.offset, c.data, random)
		case loss == Subset && c.file != nil:
			whole = random.IntN(2) == 0
			if whole {
				err = errors.Join(err, d.keep(c))
			}
		case loss == Subset:
			whole = i < until // names are kept in their order
			fallthrough
		default:
			if whole {
				err = errors.Join(err, d.keep(c))
			}
		}
		if !whole {
			lost++
		}
	}
	for _, f := range d.safe {
		if f != nil {
			f.seen = f.size
		}
	}
	d.now = maps.Clone(d.safe)
	return lost, err
}

func (f *file) write(offset int64, data []byte) {
	for len(data) > 0 {
		at := offset / page
		p := f.pages[at]
		if p == nil {
			p = new([page]byte)
			f.pages[at] = p
		}
		n := copy(p[offset%page:], data)
		offset, data = offset+int64(n), data[n:]
	}
	f.size = max(f.size, offset)
}

// writeSome writes each page of the data or does not.
func (f *file) writeSome(offset int64, data []byte, random *rand.Rand) (all bool) {
	all = true
	for len(data) > 0 {
		n := min(int64(len(data)), page-offset%page)
		if random.IntN(2) == 0 {
			f.write(offset, data[:n])
		} else {
			all = false
		}
		offset, data = offset+n, data[n:]
	}
	return all
}

func (f *file) truncate(size int64) {
	if size < f.size {
		for at, p := range f.pages {
			switch begin := at * page; {
			case begin >= size:
				delete(f.pages, at)
			case begin+page > size:
				clear(p[size-begin:])
			}
		}
	}
	f.size = size
}

// Restore makes the directory what the disk has, and everything else of it go away.
func (d *Disk) Restore() error {
	if err := os.RemoveAll(d.root); err != nil {
		return err
	}
	if err := os.MkdirAll(d.root, 0o700); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(d.safe)) {
		f := d.safe[path]
		if f == nil {
			if err := os.MkdirAll(path, 0o700); err != nil {
				return err
			}
		} else if err := f.restore(path); err != nil {
			return fmt.Errorf("restore %s: %w", path, err)
		}
	}
	return nil
}

func (f *file) restore(path string) error {
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	for at, p := range f.pages {
		if _, e := to.WriteAt(p[:min(page, f.size-at*page)], at*page); e != nil {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, to.Truncate(f.size), to.Close())
}
