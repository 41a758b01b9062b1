package kept

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Pack writes a directory to a compressed archive, with paths relative to it.
func Pack(dir, archive string) (err error) {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	zip, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(zip)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == dir {
			return nil
		}
		return packOne(w, dir, path, d)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	return errors.Join(w.Close(), zip.Close())
}

func packOne(w *tar.Writer, dir, path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	header, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	// Who packed it, and when, is not part of the data.
	header.Uid, header.Gid, header.Uname, header.Gname, header.ModTime = 0, 0, "", "", time.Unix(0, 0)
	header.Name = filepath.ToSlash(name)
	if d.IsDir() {
		header.Name += "/"
	}
	if err := w.WriteHeader(header); err != nil || d.IsDir() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}

// Unpack writes what an archive of [Pack] has below a directory. Permissions
// are those that were packed, the owner is who unpacks.
func Unpack(archive, dir string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	zip, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", archive, err)
	}
	r := tar.NewReader(zip)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackOne(r, header, dir)
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", archive, err)
		}
	}
}

func unpackOne(r io.Reader, header *tar.Header, dir string) error {
	if !filepath.IsLocal(header.Name) {
		return fmt.Errorf("%q is not below the directory", header.Name)
	}
	path := filepath.Join(dir, filepath.FromSlash(header.Name))
	if header.FileInfo().IsDir() {
		return os.MkdirAll(path, 0o700)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, header.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
