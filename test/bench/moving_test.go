package main

import (
	"bytes"
	"compress/flate"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestRealistic: what is moved has the size of other objects, and can be compressed as they can.
func TestRealistic(t *testing.T) {
	var all string
	for range 100 {
		one := realistic()
		if len(one) != len(value("")) {
			t.Fatalf("it has %d bytes, want %d", len(one), len(value("")))
		}
		all += one
	}
	var compressed bytes.Buffer
	w, err := flate.NewWriter(&compressed, flate.DefaultCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, strings.NewReader(all)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if ratio := float64(len(all)) / float64(compressed.Len()); ratio < 2 || ratio > 3 {
		t.Errorf("it is compressed %.2f to 1, want a bit more than 2: keys and metadata are less so", ratio)
	}
}

func TestDuring(t *testing.T) {
	at := func(begun, ended int) span {
		return span{time.UnixMilli(int64(begun)), time.UnixMilli(int64(ended))}
	}
	taken := []backupTaken{{span: at(10, 20)}, {span: at(30, 40)}}
	for name, c := range map[string]struct {
		write  span
		want   int
		reason string
	}{
		"before":  {at(5, 10), 0, "it was answered when the backup began"},
		"into":    {at(5, 11), 1, "the backup delayed its end"},
		"within":  {at(12, 13), 1, "the backup was taken all the time"},
		"around":  {at(5, 50), 1, "it counts once, however many backups it met"},
		"between": {at(20, 30), 0, "no backup was taken"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := during([]span{c.write}, taken); len(got) != c.want {
				t.Errorf("%s: %d writes, want %d", c.reason, len(got), c.want)
			}
		})
	}
}

func TestSample(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the memory of a process is read on Linux only")
	}
	var f footprint
	if err := f.sample(os.Getpid()); err != nil || f.anonymous < 1<<20 || f.resident < f.anonymous {
		t.Errorf("this process: %v, %+v", err, f)
	}
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Skip(err)
	}
	before := f
	if err := f.sample(ended.Process.Pid); err != nil || f != before {
		t.Errorf("a process that has ended: %v, %+v, want %+v", err, f, before)
	}
}
