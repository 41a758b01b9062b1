package disk

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// handle is an open file of the directory, or one of its directories.
type handle struct {
	path   string
	file   *file // nil: a directory
	offset int64
	append bool
	sync   bool // a write is safe when it returns
}

// enter does what takes effect before a call returns: a file that is closed may
// have its number taken while that call is still on its way.
func (r *replay) enter(c *call) error {
	if c.name == "close" && len(c.args) == 1 {
		delete(r.open, c.int(0))
	}
	return nil
}

// leave does what a call did.
func (r *replay) leave(c *call) error {
	if c.failed {
		return nil
	}
	switch c.name {
	case "close", "pread64", "sync_file_range": // the last promises nothing
		return nil
	case "open", "openat", "creat":
		return r.opened(c)
	case "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2":
		return r.named(c)
	case "sync", "syncfs":
		return errors.New("it syncs everything, which is not expected here")
	case "link", "linkat", "truncate":
		return r.refuse(c)
	case "mmap":
		return r.mapped(c)
	}
	if len(c.args) == 0 {
		return nil
	}
	if c.name == "dup" || c.name == "dup2" || c.name == "dup3" || c.name == "fcntl" && strings.HasPrefix(c.args[1], "F_DUPFD") {
		r.duplicated(c)
		return nil
	}
	if h := r.open[c.int(0)]; h != nil {
		return r.changed(c, h)
	}
	if c.name == "copy_file_range" && r.open[c.int(2)] != nil {
		return errors.New("copy_file_range is not understood")
	}
	return nil
}

// duplicated gives an open file a second number. Both have one offset.
func (r *replay) duplicated(c *call) {
	if h := r.open[c.int(0)]; h != nil {
		r.open[c.result] = h
	} else {
		delete(r.open, c.result)
	}
}

// refuse does not know what a call does, if it is about the directory.
func (r *replay) refuse(c *call) error {
	for i := range c.args {
		if path, err := c.text(i); err == nil && r.disk.inside(string(path)) {
			return fmt.Errorf("%s of %s is not understood", c.name, path)
		}
	}
	return nil
}

// path is the path of an argument, after the directory it is relative to, if
// there is one. It returns the number of the next argument.
func (r *replay) path(c *call, i int) (path string, next int, err error) {
	base := ""
	if strings.HasSuffix(c.name, "at") || c.name == "renameat2" {
		if h := r.open[c.int(i)]; h != nil {
			base = h.path
		}
		i++
	}
	text, err := c.text(i)
	path = string(text)
	if base != "" && !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	return filepath.Clean(path), i + 1, err
}

func (r *replay) opened(c *call) error {
	path, next, err := r.path(c, 0)
	if err != nil {
		return err
	}
	delete(r.open, c.result)
	if path != r.disk.root && !r.disk.inside(path) {
		return nil
	}
	flags := "O_CREAT|O_TRUNC"
	if c.name != "creat" {
		flags = c.args[next]
	}
	f, exists := r.disk.now[path]
	switch {
	case strings.Contains(flags, "O_DIRECTORY") || path == r.disk.root || exists && f == nil:
	case !exists && !strings.Contains(flags, "O_CREAT"):
		return fmt.Errorf("open %s: nobody made it", path)
	case !exists:
		f = &file{pages: map[int64]*[page]byte{}}
		if err := r.disk.name(func(n names) error { n[path] = f; return nil }); err != nil {
			return err
		}
	case strings.Contains(flags, "O_TRUNC") && f.seen > 0:
		r.disk.resize(f, func(int64) int64 { return 0 })
	}
	r.open[c.result] = &handle{
		path: path, file: f, append: strings.Contains(flags, "O_APPEND"),
		sync: strings.Contains(flags, "O_SYNC") || strings.Contains(flags, "O_DSYNC"),
	}
	return nil
}

// named does what changes names.
func (r *replay) named(c *call) error {
	path, next, err := r.path(c, 0)
	if err != nil {
		return err
	}
	switch {
	case strings.HasPrefix(c.name, "rename"):
		to, _, err := r.path(c, next)
		if err != nil {
			return err
		}
		if !r.disk.inside(path) && !r.disk.inside(to) {
			return nil
		}
		return r.disk.name(func(n names) error { return n.rename(path, to) })
	case !r.disk.inside(path):
		return nil
	case strings.HasPrefix(c.name, "mkdir"):
		return r.disk.name(func(n names) error { n[path] = nil; return nil })
	}
	return r.disk.name(func(n names) error { delete(n, path); return nil })
}

// rename renames a file, or a directory with everything in it.
func (n names) rename(from, to string) error {
	f, exists := n[from]
	if !exists {
		return fmt.Errorf("rename %s: nobody made it", from)
	}
	delete(n, from)
	n[to] = f
	for path, f := range n {
		if below, found := strings.CutPrefix(path, from+string(filepath.Separator)); found {
			delete(n, path)
			n[filepath.Join(to, below)] = f
		}
	}
	return nil
}

// mapped refuses memory through which a file changes without a call. Of SQLite's
// index of its log nothing is expected to be on the disk.
func (r *replay) mapped(c *call) error {
	h := r.open[c.int(4)]
	if h == nil || !strings.Contains(c.args[2], "PROT_WRITE") || !strings.Contains(c.args[3], "MAP_SHARED") {
		return nil
	}
	if strings.HasSuffix(h.path, "-shm") {
		return nil
	}
	return fmt.Errorf("%s is written through memory, which a trace does not show", h.path)
}

// changed does what a call did to an open file.
func (r *replay) changed(c *call, h *handle) error {
	switch c.name {
	case "fsync", "fdatasync":
		return r.disk.sync(h.file, c.number)
	case "lseek":
		h.offset = c.result
	case "read":
		h.offset += c.result
	case "write":
		at := h.offset
		if h.append {
			at = h.file.seen
		}
		h.offset = at + c.result
		return r.wrote(c, h, at)
	case "pwrite64":
		return r.wrote(c, h, c.int(3))
	case "ftruncate":
		size := c.int(1)
		r.disk.resize(h.file, func(int64) int64 { return size })
	case "fallocate":
		if c.args[1] == "0" {
			end := c.int(2) + c.int(3)
			r.disk.resize(h.file, func(size int64) int64 { return max(size, end) })
		} else if c.args[1] != "FALLOC_FL_KEEP_SIZE" {
			return fmt.Errorf("fallocate %s is not understood", c.args[1])
		}
	case "copy_file_range":
		return r.copied(c, h)
	case "fcntl": // locks and flags
	default:
		return fmt.Errorf("%s of %s is not understood", c.name, h.path)
	}
	return nil
}

// copied does what the kernel copied from one file to another.
func (r *replay) copied(c *call, from *handle) error {
	to := r.open[c.int(2)]
	if c.args[1] != "NULL" || c.args[3] != "NULL" {
		return fmt.Errorf("%s with offsets is not understood", c.name)
	}
	if to != nil {
		r.disk.Copy(to.file, to.offset, from.file, from.offset, c.result)
		to.offset += c.result
	}
	from.offset += c.result
	return nil
}

func (r *replay) wrote(c *call, h *handle, at int64) error {
	data, err := c.text(1)
	if err != nil {
		return err
	}
	if int64(len(data)) < c.result {
		return fmt.Errorf("%s: %d bytes were written, and the trace has %d", c.name, c.result, len(data))
	}
	r.disk.Write(h.file, at, data[:c.result])
	if h.sync && !c.killed {
		return r.disk.sync(h.file, r.disk.count)
	}
	return nil
}
