package filestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// object is what a file has.
type object interface {
	metav1.Object
}

const (
	suffix = ".yaml"
	// maxBytes bounds a file: twice what etcd takes.
	maxBytes = 3 << 20
)

// path is the file of a key.
func (d *Dir[T]) path(key keep.Key) string {
	return filepath.Join(d.Path, key.Namespace, key.Name+suffix)
}

// keyAt is the key of a file.
func (d *Dir[T]) keyAt(path string) keep.Key {
	key := keep.Key{Name: strings.TrimSuffix(filepath.Base(path), suffix)}
	if !d.ClusterScoped {
		key.Namespace = filepath.Base(filepath.Dir(path))
	}
	return key
}

// isKey tells whether a key can have a file: not one that leads elsewhere, or is hidden.
func (d *Dir[T]) isKey(key keep.Key) bool {
	isName := func(name string) bool { return name != "" && name[0] != '.' && !strings.ContainsAny(name, "/\\\x00") }
	return isName(key.Name) && (key.Namespace == "") == d.ClusterScoped && (key.Namespace == "" || isName(key.Namespace))
}

// keyOf is the key of an object that shall have a file.
func (d *Dir[T]) keyOf(o *T) (keep.Key, error) {
	m := any(o).(object)
	key := keep.Key{Namespace: m.GetNamespace(), Name: m.GetName()}
	if !d.isKey(key) {
		return key, fmt.Errorf("the namespace %q and the name %q cannot be those of a file in %s", key.Namespace, key.Name, d.Path)
	}
	return key, nil
}

// read reads the file of a key, which may be broken. Why names it.
func (d *Dir[T]) read(key keep.Key) (f *file, err error) {
	path := d.path(key)
	f = &file{unsure: true}
	if f.info, err = os.Lstat(path); err != nil {
		return nil, err
	}
	opened, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	} else if err != nil {
		f.broken = err
		return f, nil
	}
	defer opened.Close()
	if f.info, err = opened.Stat(); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(opened, maxBytes+1))
	if err != nil {
		f.broken = err
		return f, nil
	}
	f.sum, f.unsure = sha256.Sum256(data), time.Since(f.info.ModTime()) < tick
	if len(data) > maxBytes {
		err = fmt.Errorf("it has more than %d bytes", maxBytes)
	} else {
		f.object, err = d.parse(key, data)
	}
	if err != nil {
		f.broken = fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// parse makes an object of YAML. One without a UID gets one that follows from its key.
func (d *Dir[T]) parse(key keep.Key, data []byte) (json.RawMessage, error) {
	documents := 0
	for _, part := range bytes.Split(append([]byte("\n"), data...), []byte("\n---")) {
		var content any
		if yaml.Unmarshal(part, &content) != nil || content != nil {
			documents++
		}
	}
	if documents != 1 {
		return nil, fmt.Errorf("it has %d objects: want one in each file", documents)
	}
	o := new(T)
	if err := yaml.UnmarshalStrict(data, o); err != nil {
		return nil, err
	}
	m := any(o).(object)
	if m.GetName() != "" && m.GetName() != key.Name || m.GetNamespace() != "" && m.GetNamespace() != key.Namespace {
		return nil, fmt.Errorf("its object has the namespace %q and the name %q: want those of the file, or none",
			m.GetNamespace(), m.GetName())
	}
	m.SetNamespace(key.Namespace)
	m.SetName(key.Name)
	m.SetResourceVersion("")
	if m.GetUID() == "" {
		m.SetUID(types.UID(uuid.NewHash(sha256.New(), uuid.Nil, []byte(key.String()), 8).String()))
	}
	return json.Marshal(o)
}

// write replaces the file of a key at once: a reader sees the old content or the new one, after a
// crash too.
func (d *Dir[T]) write(key keep.Key, o *T, version int64) (f *file, err error) {
	f = &file{version: version, unsure: true}
	if f.object, err = json.Marshal(o); err != nil {
		return nil, err
	}
	data, err := yaml.JSONToYAML(f.object)
	if err != nil {
		return nil, err
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s would have %d bytes: at most %d are read", d.path(key), len(data), maxBytes)
	}
	f.sum = sha256.Sum256(data)
	dir := filepath.Dir(d.path(key))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	temporary, err := os.CreateTemp(dir, ".new-*") // with mode 0600
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return nil, err
	}
	at := time.UnixMicro(version)
	if err = os.Chtimes(temporary.Name(), at, at); err != nil {
		return nil, err
	}
	if f.info, err = os.Lstat(temporary.Name()); err != nil {
		return nil, err
	}
	if err = os.Rename(temporary.Name(), d.path(key)); err != nil {
		return nil, err
	}
	return f, syncDir(dir)
}

// syncDir has the names in a directory be on disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
