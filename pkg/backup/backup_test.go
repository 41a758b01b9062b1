package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// limit bounds what a test waits for.
const limit = 2 * time.Minute

// serve runs a server until the test, or what is returned, ends. Users come with the header X-Name, and user
// root is the administrator.
func serve(t *testing.T, s controlplane.Storage, parts ...controlplane.Part) (*controlplane.Server, func()) {
	t.Helper()
	named := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Authenticate("names", authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			name := r.Header.Get("X-Name")
			groups := []string{user.AllAuthenticated}
			if name == "root" {
				groups = append(groups, user.SystemPrivilegedGroup)
			}
			return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: groups}}, name != "", nil
		}))
		return nil
	})
	b, err := controlplane.New("shop").Storage(s).
		With(named, core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, backup.Endpoint{}).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-b.Ready():
	case err := <-done:
		done <- err
		t.Fatalf("run: %v", err)
	case <-time.After(limit):
		t.Fatal("not ready")
	}
	return b, stop
}

// clientOf is a client with all rights.
func clientOf(t *testing.T, s *controlplane.Server) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func file(t *testing.T) sqlite.File {
	t.Helper()
	return sqlite.File{Path: filepath.Join(t.TempDir(), "state.db"), UnsafeNoSync: true}
}

// secrets creates Secrets with binary data.
func secrets(t *testing.T, s *controlplane.Server, n int) {
	t.Helper()
	for i := range n {
		_, err := clientOf(t, s).CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i)}, Data: map[string][]byte{"a": {0, 255, byte(i)}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// at is what a storage has at a revision, but for the name of its format.
func at(t *testing.T, c *clientv3.Client, revision int64) map[string]string {
	t.Helper()
	r, err := c.KV.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range r.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	delete(all, "/registry/.internal/shared/format")
	return all
}

// await waits until the storage of a server is at a revision.
func await(t *testing.T, s *controlplane.Server, revision int64) {
	t.Helper()
	for deadline := time.Now().Add(limit); s.Storage(t.Context()).Revision < revision; {
		if time.Now().After(deadline) {
			t.Fatalf("the storage does not reach revision %d", revision)
		}
	}
}

// stored is what a storage that nobody uses has.
func stored(t *testing.T, s controlplane.Storage) map[string]string {
	t.Helper()
	b := s.Open()
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := b.Client()
	if err != nil {
		t.Fatal(err)
	}
	all := at(t, c, 0)
	_ = c.Close()
	if err := b.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	return all
}

// TestBackupUnderWriters: what 32 writers change meanwhile is in the backup as it was at one revision, and
// a restore to another engine has exactly that. Who saw more than the backup has, lists again.
func TestBackupUnderWriters(t *testing.T) {
	t.Parallel()
	from := file(t)
	s, stop := serve(t, from)
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	maps32 := clientOf(t, s).CoreV1().ConfigMaps("default")
	for w := range 32 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d-%d", w, i%20)}, Data: map[string]string{"n": fmt.Sprint(i)}}
				if _, err := maps32.Create(ctx, cm, metav1.CreateOptions{}); err == nil {
					continue
				}
				if _, err := maps32.Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
					continue
				}
				if i%3 == 0 {
					_ = maps32.Delete(ctx, cm.Name, metav1.DeleteOptions{})
				}
			}
		})
	}
	c, _ := s.Stored()
	var taken []byte
	var info backup.Info
	for n := range int64(5) { // each while others write
		await(t, s, 300*(n+1))
		var b bytes.Buffer
		var err error
		if info, err = backup.Write(t.Context(), s, &b); err != nil {
			t.Fatal(err)
		}
		taken = b.Bytes()
	}
	want := at(t, c, info.Revision)
	await(t, s, info.Revision+1)
	cancel()
	writers.Wait()
	last := s.Storage(t.Context()).Revision
	stop()
	if last <= info.Revision || len(want) < 32 {
		t.Fatalf("nobody wrote: revision %d of %d, %d keys", info.Revision, last, len(want))
	}
	if got := info.Keys + info.Expiring; got != int64(len(want)) || info.Resources["configmaps"].Objects == 0 {
		t.Errorf("it says it has %d keys, want %d: %+v", got, len(want), info)
	}
	to := etcd.Embedded{Dir: t.TempDir(), UnsafeNoSync: true}
	r, err := backup.Restore(t.Context(), bytes.NewReader(taken), to, backup.Options{})
	if err != nil || !r.Continuous || r.Revision <= last {
		t.Fatalf("restore: %v, %+v, want a revision above %d", err, r, last)
	}
	if diff := cmp.Diff(want, stored(t, to)); diff != "" {
		t.Errorf("restored (-want +got):\n%.2000s", diff)
	}
	// Over what is there, to the state of the backup.
	r, err = backup.Restore(t.Context(), bytes.NewReader(taken), from, backup.Options{})
	if err == nil || !strings.Contains(err.Error(), "have it overwritten") {
		t.Errorf("over what is there: %v, want it refused", err)
	}
	if r, err = backup.Restore(t.Context(), bytes.NewReader(taken), from, backup.Options{Overwrite: true}); err != nil || r.Revision <= last {
		t.Errorf("over what is there: %v, %+v", err, r)
	}
	if !maps.Equal(want, stored(t, from)) {
		t.Error("over what is there: it differs")
	}
	again, _ := serve(t, from)
	if _, err := clientOf(t, again).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// TestDamaged: of a backup that is cut off or changed anywhere, nothing is written.
func TestDamaged(t *testing.T) {
	t.Parallel()
	s, stop := serve(t, file(t))
	secrets(t, s, 3)
	var b bytes.Buffer
	want, err := backup.Write(t.Context(), s, &b)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	got, err := backup.Read(t.Context(), bytes.NewReader(b.Bytes()))
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("read: %v (-want +got):\n%s", err, diff)
	}
	to := file(t)
	refused := func(what string, content []byte) {
		t.Helper()
		if _, err := backup.Restore(t.Context(), bytes.NewReader(content), to, backup.Options{}); err == nil {
			t.Errorf("%s: it was restored", what)
		}
	}
	for n := range b.Len() {
		if n%7 == 0 {
			refused(fmt.Sprintf("cut off after %d bytes", n), b.Bytes()[:n])
			changed := bytes.Clone(b.Bytes())
			changed[n] ^= 1 << (n % 8)
			refused(fmt.Sprintf("byte %d changed", n), changed)
		}
	}
	refused("more after it", append(bytes.Clone(b.Bytes()), b.Bytes()...))
	refused("something else", []byte("apiVersion: v1"))
	if all := stored(t, to); len(all) > 0 {
		t.Errorf("what was refused wrote %d keys", len(all))
	}
}

// encryptionConfig writes one that encrypts Secrets with a key of so many bytes of a letter.
func encryptionConfig(t *testing.T, name, key string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	text := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets], providers: [{aesgcm: {keys: [{name: %s, secret: %s}]}}, {identity: {}}]}]
`, name, key)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEncrypted: what is encrypted stays so, and is restored only where it can be read.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	const key, other = "c2FpbHBsYW5lIGtleSAxIQAAAAAAAAAAAAAAAAAAAAA=", "b3RoZXIga2V5AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	right := encryptionConfig(t, "one", key)
	s, stop := serve(t, file(t), encryption.AtRest{ConfigFile: right})
	secrets(t, s, 5)
	var b bytes.Buffer
	info, err := backup.Write(t.Context(), s, &b)
	stop()
	if err != nil || info.Encrypted["k8s:enc:aesgcm:v1:one:"] != 5 || len(info.Encrypted) != 1 {
		t.Fatalf("%v, %+v", err, info)
	}
	to := file(t)
	for name, c := range map[string]struct{ config, want string }{
		"no key":           {"", `encrypted with "k8s:enc:aesgcm:v1:one:"`},
		"another key":      {encryptionConfig(t, "two", other), "cannot be decrypted"},
		"another, as one":  {encryptionConfig(t, "one", other), "cannot be decrypted"},
		"no configuration": {filepath.Join(t.TempDir(), "missing.yaml"), "no such file"},
	} {
		if _, err := backup.Restore(t.Context(), bytes.NewReader(b.Bytes()), to, backup.Options{EncryptionConfigFile: c.config}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if all := stored(t, to); len(all) > 0 {
		t.Errorf("what was refused wrote %d keys", len(all))
	}
	if _, err := backup.Restore(t.Context(), bytes.NewReader(b.Bytes()), to, backup.Options{EncryptionConfigFile: right}); err != nil {
		t.Fatal(err)
	}
	again, _ := serve(t, to, encryption.AtRest{ConfigFile: right})
	list, err := clientOf(t, again).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 5 || !bytes.Equal(list.Items[4].Data["a"], []byte{0, 255, 4}) {
		t.Errorf("%v, %v", err, list)
	}
}

// TestPrivate: private files are in a backup if asked for, and nobody reads them without the key.
func TestPrivate(t *testing.T) {
	t.Parallel()
	s, stop := serve(t, file(t))
	var plain bytes.Buffer
	if _, err := backup.Write(t.Context(), s, &plain); err != nil {
		t.Fatal(err)
	}
	stop()
	dir, key, wrong := t.TempDir(), filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "wrong")
	want := map[string]string{"ca.key": "very private", "front-proxy/ca.crt": "public"}
	for name, content := range want {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range map[string]string{key: strings.Repeat("k", 64), wrong: strings.Repeat("w", 64)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var sealed bytes.Buffer
	info, err := (backup.Private{Dir: dir, KeyFile: key}).Add(t.Context(), bytes.NewReader(plain.Bytes()), &sealed)
	if err != nil || !info.Private {
		t.Fatalf("%v, %+v", err, info)
	}
	before, _ := backup.Read(t.Context(), bytes.NewReader(plain.Bytes()))
	if info.SHA256 != before.SHA256 || info.Keys != before.Keys {
		t.Errorf("with files it says %+v, without %+v", info, before)
	}
	to, out := file(t), filepath.Join(t.TempDir(), "pki")
	for name, c := range map[string]struct {
		from []byte
		key  string
		want string
	}{
		"wrong key": {sealed.Bytes(), wrong, "sealed with another key"}, "no files": {plain.Bytes(), key, "the backup has none"},
	} {
		_, err := backup.Restore(t.Context(), bytes.NewReader(c.from), to, backup.Options{Private: backup.Private{Dir: out, KeyFile: c.key}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if all := stored(t, to); len(all) > 0 {
		t.Errorf("what was refused wrote %d keys", len(all))
	}
	if _, err := backup.Restore(t.Context(), bytes.NewReader(sealed.Bytes()), to, backup.Options{Private: backup.Private{Dir: out, KeyFile: key}}); err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		stat, err := os.Stat(filepath.Join(out, name))
		if got, _ := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != content || stat.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
	if _, err := (backup.Private{Dir: dir, KeyFile: key}).Add(t.Context(), &sealed, io.Discard); err == nil {
		t.Error("files were added twice")
	}
}

// TestEndpoint: who may get the path gets a backup, one at a time, and the server knows when.
func TestEndpoint(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, memory.Store{})
	secrets(t, s, 3)
	front := httptest.NewServer(s.Handler())
	defer front.Close()
	ask := func(method, name string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, front.URL+backup.Path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Name", name)
		answer, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	for _, c := range []struct {
		method, name string
		want         int
	}{{"GET", "", 401}, {"GET", "mallory", 403}, {"POST", "root", 405}} {
		answer := ask(c.method, c.name)
		answer.Body.Close()
		if answer.StatusCode != c.want {
			t.Errorf("%s by %q: %d, want %d", c.method, c.name, answer.StatusCode, c.want)
		}
	}
	if last := s.Storage(t.Context()).Backup; !last.Taken.IsZero() {
		t.Errorf("there was a backup: %+v", last)
	}
	answer := ask("GET", "root")
	info, err := backup.Read(t.Context(), answer.Body)
	answer.Body.Close()
	if err != nil || info.Resources["secrets"].Objects != 3 || info.Engine != "memory" {
		t.Errorf("%v, %+v", err, info)
	}
	// The answer ends after it is noted.
	if last := s.Storage(t.Context()).Backup; !last.Taken.Equal(info.Taken) || last.Revision != info.Revision {
		t.Errorf("noted: %+v, want %+v", last, info)
	}
}

// TestSchedule: a server takes backups, keeps as many as it should, and goes on where it was.
func TestSchedule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{
		"shop-20250101T000000Z.backup", "shop-20250102T000000Z.backup", "shop-20250103T000000Z.backup.incomplete",
		"shop-old.backup", "other-20250101T000000Z.backup",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	from := file(t)
	taken := func() (names []string) {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			names = append(names, e.Name())
		}
		return names
	}
	s, stop := serve(t, from, backup.Schedule{Dir: dir, Every: time.Hour, Keep: 2})
	deadline := time.Now().Add(limit)
	for s.Storage(t.Context()).Backup.Taken.IsZero() {
		if time.Now().After(deadline) {
			t.Fatal("no backup")
		}
	}
	stop()
	names := taken()
	if len(names) != 4 || names[0] != "other-20250101T000000Z.backup" || names[1] != "shop-20250102T000000Z.backup" || names[3] != "shop-old.backup" {
		t.Fatalf("there are %v", names)
	}
	f, err := os.Open(filepath.Join(dir, names[2]))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := backup.Read(t.Context(), f); err != nil {
		t.Error(err)
	}
	if stat, err := f.Stat(); err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", err, stat.Mode())
	}
	_, stop = serve(t, from, backup.Schedule{Dir: dir, Every: time.Hour, Keep: 2})
	stop()
	if diff := cmp.Diff(names, taken()); diff != "" {
		t.Errorf("a server that was started again took one (-before +after):\n%s", diff)
	}
}

// TestScheduleIsChecked: what cannot be is an error of Build.
func TestScheduleIsChecked(t *testing.T) {
	t.Parallel()
	_, err := controlplane.New("shop").Storage(memory.Store{}).With(backup.Schedule{Every: -1, Keep: -1}).Build()
	for _, want := range []string{"field Dir", "field Every", "field Keep"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
