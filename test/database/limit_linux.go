package database

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Room is how large the files of a database may become.
type Room int

const (
	// Full is a little larger than the largest that it has.
	Full Room = iota
	// Free is as large as they want.
	Free
)

// moreRoom is what is left on a disk that is Full, in bytes.
const moreRoom = 4 << 20

// LimitFiles says how large the files of the server may become, as a disk without space does.
func (s *Server) LimitFiles(ctx context.Context, room Room) error {
	limit := "unlimited"
	if room == Full {
		largest, err := s.largestFile()
		if err != nil {
			return err
		}
		limit = strconv.FormatInt(largest+moreRoom, 10)
	}
	set := func(pid int) error {
		id := strconv.Itoa(pid)
		err := s.run(ctx, "prlimit", "--pid", id, "--fsize="+limit+":") // which only the user of a process may do
		if _, there := os.Stat("/proc/" + id); there == nil {
			return err
		}
		return nil
	}
	if err := set(s.running.Process.Pid); err != nil { // what it starts from now on has its limit
		return err
	}
	for _, pid := range s.children() {
		if err := set(pid); err != nil {
			return err
		}
	}
	return nil
}

// largestFile is the size of the largest one, in bytes.
func (s *Server) largestFile() (size int64, err error) {
	err = filepath.WalkDir(s.Data, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		size = max(size, info.Size())
		return err
	})
	return size, err
}

// children are the processes that the server has started.
func (s *Server) children() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(content), ") ") // after its name
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(s.running.Process.Pid) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
