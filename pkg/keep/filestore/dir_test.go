package filestore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/keep"
	"github.com/sailplane-dev/sailplane/pkg/keep/filestore"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
)

type apples = filestore.Dir[fruit.Apple]

func TestContract(t *testing.T) {
	t.Parallel()
	for name, clusterScoped := range map[string]bool{"Namespaced": false, "ClusterScoped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keeptest.Run(t, keeptest.Options[fruit.Apple]{
				ClusterScoped: clusterScoped,
				Fill: func(a *fruit.Apple, n int) {
					a.Spec = fruit.AppleSpec{Variety: "' and \" and\n: \x01", Replicas: new(int32(n))} //nolint:gosec // it is small
				},
				Break: func(t *testing.T, k keep.Keeper[fruit.Apple], key keep.Key) {
					t.Helper()
					before := follow(t, k.(*apples))
					write(t, filepath.Join(k.(*apples).Path, key.Namespace, key.Name+".yaml"), "spec: {variety: ")
					before.sees("a file that is no object", key.String()+" ")
				},
				Reopen: func(_ *testing.T, k keep.Keeper[fruit.Apple]) keep.Keeper[fruit.Apple] {
					return &apples{Path: k.(*apples).Path, ClusterScoped: clusterScoped}
				},
			}, func(t *testing.T) keep.Keeper[fruit.Apple] {
				return &apples{Path: t.TempDir(), ClusterScoped: clusterScoped}
			})
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// follower is a reader that follows the changes.
type follower struct {
	t       *testing.T
	keeper  *apples
	version int64
}

func follow(t *testing.T, d *apples) *follower {
	t.Helper()
	page, err := d.List(t.Context(), keep.Range{})
	if err != nil {
		t.Fatal(err)
	}
	return &follower{t, d, page.Version}
}

// next waits for changes and returns them, as "KEY VARIETY" or "KEY gone".
func (f *follower) next() string {
	f.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		b, err := f.keeper.Changes(f.t.Context(), f.version)
		if err != nil {
			f.t.Fatal(err)
		}
		f.version = b.Version
		var all []string
		for _, c := range b.Changes {
			what := "gone"
			if c.Object != nil {
				what = c.Object.Spec.Variety
			}
			all = append(all, c.Key.String()+" "+what)
		}
		if len(all) > 0 {
			return strings.Join(all, ", ")
		}
	}
	f.t.Fatal("no change in 30 s")
	return ""
}

func (f *follower) sees(what, want string) {
	f.t.Helper()
	if got := f.next(); got != want {
		f.t.Errorf("%s: changes %q, want %q", what, got, want)
	}
}

// TestEditor: what an editor writes, adds and removes is seen, however it does that.
func TestEditor(t *testing.T) {
	t.Parallel()
	d := &apples{Path: t.TempDir()}
	f := follow(t, d)
	a, b := filepath.Join(d.Path, "ns", "a.yaml"), filepath.Join(d.Path, "ns", "b.yaml")
	write(t, a, "# an apple\nspec: {variety: cox}\n")
	f.sees("a file", "ns/a cox")
	write(t, a, "spec: {variety: fox}\n")
	f.sees("a file with other content", "ns/a fox")
	write(t, a, "spec: {variety: box}\n") // of the same size, maybe at the same time
	f.sees("a file with content of the same size", "ns/a box")
	write(t, b, "metadata: {name: b, namespace: ns}\nspec: {variety: gala}\n")
	old := time.Unix(1700000000, 0)
	if err := os.Chtimes(b, old, old); err != nil {
		t.Fatal(err)
	}
	f.sees("a file that is older than the last change", "ns/b gala")
	if err := os.Rename(b, a); err != nil {
		t.Fatal(err)
	}
	if got := f.next(); got != "ns/b gone" {
		t.Errorf("a file that replaces another one, of another name: changes %q", got)
	}
	write(t, filepath.Join(d.Path, "ns", "c.yaml~"), "x")
	write(t, filepath.Join(d.Path, "ns", ".c.yaml"), "x")
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	f.sees("no file", "ns/a gone")
}

// TestBadFile: a file that is no object changes nothing, and is not overwritten. After a start it is
// left out.
func TestBadFile(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"no YAML":        "spec: {variety: ",
		"empty":          "",
		"a comment":      "# nothing\n",
		"unknown field":  "spec: {weight: 7}",
		"another name":   "metadata: {name: b}\nspec: {variety: cox}",
		"two objects":    "spec: {variety: cox}\n---\nspec: {variety: gala}\n",
		"too many bytes": "spec: {variety: cox}\n#" + strings.Repeat("x", 3<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &apples{Path: t.TempDir()}
			a := filepath.Join(d.Path, "ns", "a.yaml")
			write(t, a, "spec: {variety: cox}\n")
			f := follow(t, d)
			write(t, a, content)
			key := keep.Key{Namespace: "ns", Name: "a"}
			item, err := d.Get(t.Context(), key)
			if err != nil || item.Object.Spec.Variety != "cox" {
				t.Fatalf("its last good state is gone: %v, %v", item.Object, err)
			}
			if _, err := d.Put(t.Context(), item.Object, item.Version); err == nil || !strings.Contains(err.Error(), a) {
				t.Errorf("a write over it: %v, want an error that names %s", err, a)
			}
			if err := d.Warning(); err == nil || !strings.Contains(err.Error(), a) {
				t.Errorf("while its last good state is served the warning is %v, want one that names %s", err, a)
			}
			again := &apples{Path: d.Path}
			page, err := again.List(t.Context(), keep.Range{})
			if err != nil || len(page.Items) != 1 || !strings.Contains(fmt.Sprint(page.Items[0].Broken), a) {
				t.Errorf("a start with it: %v, %v, want a broken one that names %s", page, err, a)
			}
			if err := again.Warning(); err != nil {
				t.Errorf("a start with it: the warning is %v, beside a broken one", err)
			}
			write(t, a, "spec: {variety: gala}\n")
			f.sees("a file that is right again", "ns/a gala")
			if err := d.Warning(); err != nil {
				t.Errorf("when it is right again the warning is %v", err)
			}
			if item, err = d.Get(t.Context(), key); err == nil {
				_, err = d.Put(t.Context(), item.Object, item.Version)
			}
			if err != nil {
				t.Errorf("a write of a file that is right again: %v", err)
			}
		})
	}
}

// TestFile: what is written is readable for its owner only, and an object for kubectl.
func TestFile(t *testing.T) {
	t.Parallel()
	d := &apples{Path: filepath.Join(t.TempDir(), "new")}
	o := &fruit.Apple{
		TypeMeta:   metav1.TypeMeta{APIVersion: "fruit.example.com/v1", Kind: "Apple"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u"}, Spec: fruit.AppleSpec{Variety: "cox"},
	}
	version, err := d.Put(t.Context(), o, 0)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Path, "ns", "a.yaml")
	data, err := os.ReadFile(path)
	want := "apiVersion: fruit.example.com/v1\nkind: Apple\nmetadata:\n  name: a\n  namespace: ns\n  uid: u\nspec:\n  variety: cox\nstatus: {}\n"
	if err != nil || string(data) != want {
		t.Errorf("the file has\n%s, want\n%s: %v", data, want, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it has mode %v: %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("there are %d files beside it: %v", len(entries)-1, err)
	}
	again, err := (&apples{Path: d.Path}).Get(t.Context(), keep.Key{Namespace: "ns", Name: "a"})
	if err != nil || again.Version != version {
		t.Errorf("version %d is %d after a restart: %v", version, again.Version, err)
	}
}

// TestElsewhere: no name leads out of the directory.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := &apples{Path: filepath.Join(dir, "in")}
	write(t, filepath.Join(dir, "out", "a.yaml"), "spec: {variety: cox}\n")
	write(t, filepath.Join(dir, "in", "a.yaml"), "spec: {variety: cox}\n")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "in", "ns"), 0o700))
	must(os.Symlink(filepath.Join(dir, "out", "a.yaml"), filepath.Join(dir, "in", "ns", "link.yaml")))
	for _, key := range []keep.Key{
		{Namespace: "ns", Name: "link"},
		{Namespace: "../out", Name: "a"},
		{Namespace: "..", Name: "out/a"},
		{Namespace: "ns", Name: "../../out/a"},
		{Name: "a"},
		{Namespace: ".", Name: "a"},
		{Namespace: "ns", Name: ""},
	} {
		if _, err := d.Get(t.Context(), key); !errors.Is(err, keep.ErrNotFound) {
			t.Errorf("get %v: %v", key, err)
		}
		if _, err := d.Remove(t.Context(), key, 1); !errors.Is(err, keep.ErrNotFound) {
			t.Errorf("remove %v: %v", key, err)
		}
		if _, err := d.Put(t.Context(), &fruit.Apple{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, 0); err == nil {
			t.Errorf("put %v is acknowledged", key)
		}
	}
}

// TestHistory: the changes that are known are bounded.
func TestHistory(t *testing.T) {
	t.Parallel()
	d := &apples{Path: t.TempDir(), History: 10}
	f := follow(t, d)
	for i := range 30 {
		o := &fruit.Apple{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a" + strings.Repeat("x", i)}}
		if _, err := d.Put(t.Context(), o, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Changes(t.Context(), f.version); !errors.Is(err, keep.ErrExpired) {
		t.Errorf("changes from before those that are kept: %v", err)
	}
}
