package pki

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// file is a file to write.
type file struct {
	name string
	data []byte
}

// writeFiles replaces files in a folder, in the given order and each as a whole:
// after a crash a file has its old content or its new one. Modes are 0600.
func writeFiles(dir string, files []file) error {
	if len(files) == 0 {
		return nil
	}
	temps := make([]string, len(files))
	// The disk handles several fsyncs that wait at the same time as one job.
	var group errgroup.Group
	for i, f := range files {
		group.Go(func() (err error) {
			temps[i], err = stage(dir, f)
			return err
		})
	}
	err := group.Wait()
	for i, f := range files {
		if err == nil {
			err = os.Rename(temps[i], filepath.Join(dir, f.name))
		}
		if err != nil && temps[i] != "" {
			_ = os.Remove(temps[i])
		}
	}
	if err != nil {
		return err
	}
	syncDir(dir)
	return nil
}

// stage writes a temporary file to disk and returns its path, also with an error.
func stage(dir string, f file) (string, error) {
	temp, err := os.CreateTemp(dir, tempPrefix(f.name)+"*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = temp.Write(f.data)
	if err == nil {
		err = temp.Sync()
	}
	return temp.Name(), errors.Join(err, temp.Close())
}

// syncDir makes renames durable. It is best effort, because Windows and some
// network file systems cannot: a lost rename leaves the old file.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// removeTemps removes the temporary files of the named files that a crash left, if
// they are at least of the given age. It is best effort: a leftover file does no
// harm.
func removeTemps(dir string, names []string, age time.Duration) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		of := func(name string) bool { return strings.HasPrefix(entry.Name(), tempPrefix(name)) }
		if !entry.Type().IsRegular() || !slices.ContainsFunc(names, of) {
			continue
		}
		if info, err := entry.Info(); err != nil || time.Since(info.ModTime()) < age {
			continue // gone, or still being written
		}
		_ = os.Remove(filepath.Join(dir, entry.Name()))
	}
}

// tempPrefix returns the prefix of the names of a file's temporary files.
func tempPrefix(name string) string { return "." + name + ".tmp-" }
