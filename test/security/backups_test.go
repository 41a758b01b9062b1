package security

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/insight"
)

// TestBackups: everything that is stored is for those who may get a backup, and maintenance for those who
// may ask for it; neither is a way to anything else, and nobody keeps the server busy with them.
func TestBackups(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), backupAttempts())
}

func backupAttempts() map[string]attempt {
	return map[string]attempt{
		"backup without the right": {reason: "it has every object of everybody", try: func(t *testing.T, w *world) {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
				w.unauthorized(t, request{method: method, path: backup.Path})
				for name := range users() {
					if name != "saver" || method != "GET" {
						w.forbidden(t, request{as: name, method: method, path: backup.Path})
					}
				}
			}
		}},
		"paths similar to backup": {reason: "the right is for one path", try: func(t *testing.T, w *world) {
			for _, path := range []string{
				"/backup/", "/backup/x", "/backup/..", "//backup", "/./backup", "/x/../backup", "/BACKUP", "/backup%2f", "/backup%00", "/backup;a",
				"/%62ackup/", "/version/../backup", "/api/backup", "/apis/backup",
			} {
				for _, as := range []string{"stranger", "saver", admin} {
					a := w.send(t, request{as: as, method: "GET", path: path})
					if a.code < 300 || a.header.Get("Content-Type") == "application/zstd" {
						t.Errorf("%s as %s: %d %s", path, as, a.code, a.header.Get("Content-Type"))
					}
				}
				if a := w.send(t, request{method: "GET", path: path}); a.code < 300 {
					t.Errorf("%s: %d %s", path, a.code, short(a.body))
				}
			}
		}},
		"right to take backups": {reason: "who reads all that is stored does nothing else with it", try: func(t *testing.T, w *world) {
			if _, info := w.backup(t); info.Resources["secrets"].Objects == 0 {
				t.Errorf("the backup has no Secrets: %+v", info)
			}
			w.onlyDiscovers(t, "saver", "GET "+backup.Path)
		}},
		"right to maintain the storage": {reason: "who compacts a storage reads nothing of it", try: func(t *testing.T, w *world) {
			w.must(t, request{as: "mender", method: "POST", path: insight.MaintenancePath + "?do=compact"}, http.StatusOK)
			post := "POST " + insight.MaintenancePath
			w.onlyDiscovers(t, "mender", post, post+"?do=compact", post+"?do=defragment")
		}},
		"maintenance without the right": {reason: "others wait while a storage is written anew", try: func(t *testing.T, w *world) {
			for _, do := range []string{"", "?do=compact", "?do=defragment", "?do=other"} {
				w.unauthorized(t, request{method: "POST", path: insight.MaintenancePath + do})
				for name := range users() {
					if name != "mender" {
						w.forbidden(t, request{as: name, method: "POST", path: insight.MaintenancePath + do})
					}
				}
				// As a link that somebody follows.
				w.forbidden(t, request{as: "mender", method: "GET", path: insight.MaintenancePath + do})
				if a := w.must(t, request{method: "GET", path: insight.MaintenancePath + do}, http.StatusMethodNotAllowed); a.header.Get("Allow") != "POST" {
					t.Errorf("a GET is answered with %v", a.header)
				}
			}
			w.must(t, request{method: "POST", path: insight.MaintenancePath + "?do=other"}, http.StatusBadRequest)
		}},
		"backups at once, not read":    {reason: "one is taken at a time, and who does not take it is cut off", try: unreadBackups},
		"what is in a backup":          {reason: "a backup is worth no more than the storage", try: insideBackup},
		"files of backups":             {reason: "other users of the machine read none", try: backupFiles},
		"file that waits for a backup": {reason: "who makes the file first does not get what is written to it", try: waitingFile},
	}
}

// forbidden sends a request to which 403 is the answer.
func (w *world) forbidden(t *testing.T, r request) {
	t.Helper()
	if a := w.send(t, r); a.code != http.StatusForbidden {
		t.Errorf("%s %s as %s: %d, want 403: %s", r.method, r.path, r.as, a.code, short(a.body))
	}
}

// backup takes one as user saver.
func (w *world) backup(t *testing.T) ([]byte, backup.Info) {
	t.Helper()
	a, err := w.try(t.Context(), request{as: "saver", method: "GET", path: backup.Path}) // it has the treasure
	if err != nil || a.code != http.StatusOK {
		t.Fatalf("a backup: %v %d %s", err, a.code, short(a.body))
	}
	info, err := backup.Read(t.Context(), strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(a.body), info
}

// unreadBackups asks for large backups and reads none, over HTTP/1.1 and HTTP/2: nobody gets another meanwhile,
// and everybody is served.
func unreadBackups(t *testing.T, _ *world) {
	old, current := serve(t), serve(t)
	for _, w := range []*world{old, current} {
		w.fill(t, 24) // more than the buffers between here and there
	}
	conn := old.dial(t, "http/1.1")
	if err := conn.SetDeadline(time.Now().Add(2 * limit)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n", backup.Path, tokenOf("saver")); err != nil {
		t.Fatal(err)
	}
	read := bufio.NewReader(conn)
	first, err := read.ReadString('\n')
	if err != nil || first != "HTTP/1.1 200 OK\r\n" {
		t.Fatalf("over HTTP/1.1: %q %v", first, err)
	}
	stream := current.framed(t)
	if err := stream.request(1, "GET", backup.Path, "saver", true); err != nil {
		t.Fatal(err)
	}
	if code := stream.status(t, 1); code != "200" {
		t.Fatalf("over HTTP/2: %s", code)
	}
	for _, w := range []*world{old, current} {
		a := w.await(t, request{as: admin, method: "GET", path: backup.Path}, http.StatusTooManyRequests)
		if a.header.Get("Retry-After") == "" {
			t.Errorf("the refusal does not say when to ask again: %v", a.header)
		}
		w.serves(t)
	}
	stream.ended(t, 1) // it answers pings, and opens no window
	for _, w := range []*world{old, current} {
		w.await(t, request{as: admin, method: "GET", path: backup.Path}, http.StatusOK)
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(first), read)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if info, err := backup.Read(t.Context(), resp.Body); err == nil {
		t.Errorf("what was cut off is taken for a backup: %+v", info)
	}
	old.unharmed(t)
	current.unharmed(t)
}

// fill makes so many objects of 1 MiB that no compression makes smaller.
func (w *world) fill(t *testing.T, count int) {
	t.Helper()
	each(t, count, func(n int) {
		data := make([]byte, 1<<20-1024)
		_, _ = rand.Read(data) // never fails
		body := fmt.Sprintf(`{"metadata":{"name":"dense-%d"},"binaryData":{"a":%q}}`, n, base64.StdEncoding.EncodeToString(data))
		a, err := w.try(t.Context(), request{as: "editor", method: "POST", path: tenant + "/configmaps", body: body})
		if err != nil || a.code != http.StatusCreated {
			t.Errorf("dense-%d: %v %d %s", n, err, a.code, short(a.body))
		}
	})
}

// insideBackup looks for keys of the server in a backup, and for what is encrypted.
func insideBackup(t *testing.T, w *world) {
	plain := unpack(t, w.taken(t))
	if !bytes.Contains(plain, []byte(treasure)) {
		t.Error("a backup of what is not encrypted has it encrypted: nothing is tried")
	}
	n := 0
	err := filepath.WalkDir(filepath.Join(w.dir, "pki"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for line := range bytes.Lines(content) {
			if line = bytes.TrimSpace(line); len(line) > 60 { // of PEM
				n++
				if strings.HasSuffix(path, ".key") && bytes.Contains(plain, line) {
					t.Errorf("%s is in the backup", path)
				}
			}
		}
		return err
	})
	if err != nil || n == 0 {
		t.Errorf("no key was looked for: %v", err)
	}
	for name := range users() {
		if bytes.Contains(plain, []byte(tokenOf(name))) {
			t.Errorf("the token of %s is in the backup", name)
		}
	}
	const key = "c2FpbHBsYW5lIGtleSAxIQAAAAAAAAAAAAAAAAAAAAA="
	config := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(config, []byte(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets, configmaps, gourds.security.example.com], providers: [{aesgcm: {keys: [{name: one, secret: `+key+`}]}}]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	sealed := unpack(t, serve(t, encryption.AtRest{ConfigFile: config}).taken(t))
	for what, secret := range map[string]string{"what is encrypted": treasure, "the key": key} {
		if bytes.Contains(sealed, []byte(secret)) {
			t.Errorf("%s is in the backup", what)
		}
	}
}

// taken is a backup.
func (w *world) taken(t *testing.T) []byte {
	t.Helper()
	b, _ := w.backup(t)
	return b
}

func unpack(t *testing.T, packed []byte) []byte {
	t.Helper()
	d, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	plain, err := io.ReadAll(d)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// backupFiles has a server take its own backups, and looks at what it writes.
func backupFiles(t *testing.T, _ *world) {
	dir := filepath.Join(t.TempDir(), "backups")
	serve(t, backup.Schedule{Dir: dir})
	name := regexp.MustCompile(`^security-\d{8}T\d{6}Z\.backup$`)
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		all, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatal("the server takes no backup")
		}
		done := false
		for _, entry := range all {
			stat, err := entry.Info()
			if err != nil {
				continue // it has another name now
			}
			if stat.Mode() != 0o600 {
				t.Errorf("%s has mode %v", entry.Name(), stat.Mode())
			}
			done = done || name.MatchString(entry.Name())
		}
		if done {
			break
		}
	}
	if stat, err := os.Stat(dir); err != nil || stat.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v %v", err, stat.Mode())
	}
}

// waitingFile puts a file that everybody may read, and a link, where a backup is written next.
func waitingFile(t *testing.T, w *world) {
	dir := t.TempDir()
	stolen := filepath.Join(dir, "stolen")
	for what, put := range map[string]func(path string) error{
		"file": func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)) },
		"link": func(path string) error { return os.Symlink(stolen, path) },
	} {
		path := filepath.Join(dir, what+".backup")
		if err := put(path + ".incomplete"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := backup.WriteFile(path, func(to io.Writer) (backup.Info, error) { return backup.Write(t.Context(), w.server, to) }); err != nil {
			t.Fatal(err)
		}
		if stat, err := os.Lstat(path); err != nil || stat.Mode() != 0o600 {
			t.Errorf("the backup is a %s of the thief: %v %v", what, err, stat.Mode())
		}
	}
	if _, err := os.Stat(stolen); err == nil {
		t.Error("the backup was written to where a link leads")
	}
}
