package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"os"
	"slices"
	"time"
)

// packed is a file of an archive: its name there and its path here.
type packed struct {
	name, from string
	mode       int64
}

// pack returns a tar.gz archive that depends on nothing but the content, names
// and modes of the files, and the time.
func pack(files []packed, when time.Time) ([]byte, error) {
	var b bytes.Buffer
	zip, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(zip)
	files = slices.SortedFunc(slices.Values(files), func(a, b packed) int { return cmp.Compare(a.name, b.name) })
	for _, f := range files {
		content, err := os.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		// No owner: whoever unpacks it as root owns the files as root.
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(content)), ModTime: when, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := archive.Write(content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
