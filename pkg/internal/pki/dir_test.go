package pki

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const day = 24 * time.Hour

func TestLoadIssues(t *testing.T) {
	t.Parallel()
	id := mustLoad(t, filepath.Join(t.TempDir(), "a", "pki"), Request{Hosts: []string{"api.example.com", "192.0.2.7"}, Clock: at(0)})
	checkIdentity(t, id, epoch().Add(-4*time.Minute))

	ca, server, admin := mustCert(t, id.CA), mustCert(t, id.ServerCert), mustCert(t, id.AdminCert)
	if !isP256(ca) || !isP256(server) || !isP256(admin) {
		t.Error("a key is not ECDSA P-256")
	}
	for name, got := range map[string]time.Time{"ca": ca.NotBefore, "server": server.NotBefore, "admin": admin.NotBefore} {
		if want := epoch().Add(-backdate); !got.Equal(want) {
			t.Errorf("%s begins at %s, want %s", name, got, want)
		}
	}
	if got, want := ca.NotAfter, epoch().Add(3650*day); !got.Equal(want) {
		t.Errorf("ca ends at %s, want %s", got, want)
	}
	if got, want := server.NotAfter, epoch().Add(365*day); !got.Equal(want) {
		t.Errorf("server ends at %s, want %s", got, want)
	}
	if got, want := admin.NotAfter, epoch().Add(30*day); !got.Equal(want) || !id.NotAfter.Equal(want) || !id.Renew.Equal(epoch().Add(20*day)) {
		t.Errorf("admin ends at %s, identity at %s, it is renewed at %s; want %s, and 10 days before", got, id.NotAfter, id.Renew, want)
	}
	if diff := cmp.Diff([]string{"localhost", "api.example.com"}, server.DNSNames); diff != "" {
		t.Errorf("DNS names (-want +got):\n%s", diff)
	}
	for _, host := range []string{"127.0.0.1", "::1", "192.0.2.7"} {
		if err := server.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if admin.Subject.CommonName != "sailplane-admin" || !cmp.Equal(admin.Subject.Organization, []string{"system:masters"}) {
		t.Errorf("admin is %s", admin.Subject)
	}
}

func TestLoadInMemory(t *testing.T) {
	t.Parallel()
	one, two := mustLoad(t, "", Request{}), mustLoad(t, "", Request{})
	checkIdentity(t, one, time.Now())
	if cmp.Equal(one.CA, two.CA) {
		t.Error("two starts in memory have the same authority")
	}
}

func TestLoadModes(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("windows has no such modes")
	}
	dir := filepath.Join(t.TempDir(), "parent", "pki")
	mustLoad(t, dir, Request{})
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Stat(d); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v, want 0700", d, info.Mode(), err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(entries), len(fileNames())+1; got != want {
		t.Errorf("%d files, want %d", got, want)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want 0600", entry.Name(), info.Mode(), err)
		}
	}
}

// againCase is an identity from epoch that is loaded again.
type againCase struct {
	reason string
	after  time.Duration
	req    Request
	damage func(t *testing.T, dir string)
	// want are the files that the second load writes.
	want map[string]bool
}

// written is a set of files.
func written(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// TestLoadAgain asks for something else or at another time.
func TestLoadAgain(t *testing.T) {
	t.Parallel()
	server, admin := written("server.crt", "server.key"), written("admin.crt", "admin.key")
	leaves := written("server.crt", "server.key", "admin.crt", "admin.key")
	for name, tc := range map[string]againCase{
		"same":         {reason: "a valid identity is reused", want: written()},
		"same hosts":   {reason: "hosts covered in any form are reused", req: Request{Hosts: []string{"OLD.example.com.", "[::1]"}}, want: written()},
		"20 days":      {reason: "an administrator's with a little over 10 days left is reused", after: 20*day - time.Minute, want: written()},
		"20 days and":  {reason: "it is renewed 10 days before its end", after: 20 * day, want: admin},
		"335 days":     {reason: "a serving certificate with a little over 30 days left is reused", after: 335*day - time.Minute, want: admin},
		"day":          {reason: "a shorter lifetime needs a new one", req: Request{Lifetime: day}, want: admin},
		"335 days and": {reason: "leaves are renewed 30 days before their end", after: 335 * day, want: leaves},
		"expired":      {reason: "leaves are renewed after their end", after: 400 * day, want: leaves},
		"clock back":   {reason: "a few minutes back are within the backdating", after: -4 * time.Minute, want: written()},
		"new host":     {reason: "a new host needs a new serving certificate", req: Request{Hosts: []string{"new.example.com"}}, want: server},
		"new address":  {reason: "a new address needs a new serving certificate", req: Request{Hosts: []string{"192.0.2.1"}}, want: server},
		"new user":     {reason: "another user needs another certificate", req: Request{User: "eve"}, want: admin},
		"new groups":   {reason: "other groups need another certificate", req: Request{Groups: []string{"b", "a"}}, want: admin},
	} {
		t.Run(name, tc.run)
	}
}

// TestLoadDamaged loads what a crash or a person left behind.
func TestLoadDamaged(t *testing.T) {
	t.Parallel()
	server, admin := written("server.crt", "server.key"), written("admin.crt", "admin.key")
	for name, tc := range map[string]againCase{
		"no server.crt": {
			reason: "a missing certificate is issued",
			damage: func(t *testing.T, dir string) { mustRemove(t, dir, "server.crt") },
			want:   server,
		},
		"no admin.key": {
			reason: "a missing key is made, with its certificate",
			damage: func(t *testing.T, dir string) { mustRemove(t, dir, "admin.key") },
			want:   admin,
		},
		"crash between renames": {
			reason: "a leaf's key that was replaced without its certificate is replaced again",
			damage: func(t *testing.T, dir string) {
				mustWrite(t, mustLoad(t, "", Request{}).ServerKey, dir, "server.key")
			},
			want: server,
		},
		"crash at first start": {
			reason: "an authority's key without a certificate is used",
			damage: func(t *testing.T, dir string) { mustRemove(t, dir, "ca.crt") },
			// The leaves stay: what the same key signed is still valid.
			want: written("ca.crt"),
		},
		"no authority": {
			reason: "leaves of an authority that is gone are issued again",
			damage: func(t *testing.T, dir string) { mustRemove(t, dir, "ca.crt", "ca.key") },
			want:   written(fileNames()...),
		},
		"leaf of another": {
			reason: "a pair that another authority signed is issued again",
			damage: func(t *testing.T, dir string) {
				other := mustLoad(t, "", Request{Clock: at(0)})
				mustWrite(t, other.AdminCert, dir, "admin.crt")
				mustWrite(t, other.AdminKey, dir, "admin.key")
			},
			want: admin,
		},
		"wrong usage": {
			reason: "a client certificate in the server's place is issued again",
			damage: func(t *testing.T, dir string) {
				files := mustRead(t, dir)
				mustWrite(t, files["admin.crt"], dir, "server.crt")
				mustWrite(t, files["admin.key"], dir, "server.key")
			},
			want: server,
		},
		"leftovers": {
			reason: "temporary files of a crash are removed",
			damage: func(t *testing.T, dir string) {
				mustWrite(t, []byte("half"), dir, ".ca.key.tmp-123")
				mustWrite(t, nil, dir, ".server.crt.tmp-9")
			},
			want: written(),
		},
	} {
		t.Run(name, tc.run)
	}
}

func (tc againCase) run(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustLoad(t, dir, Request{Hosts: []string{"old.example.com"}, Clock: at(0)})
	before := mustRead(t, dir)
	if tc.damage != nil {
		tc.damage(t, dir)
	}
	tc.req.Clock = at(tc.after)
	id := mustLoad(t, dir, tc.req)
	checkIdentity(t, id, epoch().Add(tc.after))
	after := mustRead(t, dir)
	got := changedFiles(before, after)
	if diff := cmp.Diff(tc.want, got); diff != "" {
		t.Errorf("%s: changed files (-want +got):\n%s", tc.reason, diff)
	}
	// What is on disk is what was returned, and it is stable.
	again := mustLoad(t, dir, tc.req)
	if diff := cmp.Diff(id, again); diff != "" {
		t.Errorf("%s: third load (-second +third):\n%s", tc.reason, diff)
	}
	if temps, _ := filepath.Glob(filepath.Join(dir, ".*.tmp-*")); len(temps) > 0 {
		t.Errorf("%s: left %v", tc.reason, temps)
	}
	// Only a certificate that is there can say which names it had.
	if _, ok := tc.want["server.crt"]; ok && tc.damage == nil {
		if err := mustCert(t, id.ServerCert).VerifyHostname("old.example.com"); err != nil {
			t.Errorf("%s: old name is gone: %v", tc.reason, err)
		}
	}
}

func TestLoadDirIsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	mustWrite(t, nil, path)
	for _, dir := range []string{path, filepath.Join(path, "below")} {
		_, err := Dir(dir).Load(t.Context(), Request{})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Load(%s): %v, want an error that names the folder", dir, err)
		}
	}
}

// TestLoadKeepsNames gives each start another host: none may be lost.
func TestLoadKeepsNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hosts := []string{"a.example.com", "192.0.2.1", "*.example.org", "2001:db8::1"}
	for _, host := range hosts {
		mustLoad(t, dir, Request{Hosts: []string{host}})
	}
	cert := mustCert(t, mustLoad(t, dir, Request{}).ServerCert)
	for _, host := range hosts {
		if err := cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if got, want := len(cert.DNSNames)+len(cert.IPAddresses), 3+len(hosts); got != want {
		t.Errorf("%d names, want %d: %v %v", got, want, cert.DNSNames, cert.IPAddresses)
	}
}

// TestLoadClamped checks that leaves end with an authority that has less than a
// year left, and that they are not issued anew at every start because of it.
func TestLoadClamped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := mustCert(t, mustLoad(t, dir, Request{Clock: at(0)}).CA)
	req := Request{Clock: at(3600 * day)}
	id := mustLoad(t, dir, req)
	if server := mustCert(t, id.ServerCert); !server.NotAfter.Equal(ca.NotAfter) {
		t.Errorf("leaf ends at %s, want the authority's end %s", server.NotAfter, ca.NotAfter)
	}
	if diff := cmp.Diff(id, mustLoad(t, dir, req)); diff != "" {
		t.Errorf("issued again (-first +second):\n%s", diff)
	}
}

// TestLoadCABundle checks that only certificates leave ca.crt, whatever else it holds.
func TestLoadCABundle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := mustLoad(t, dir, Request{})
	files := mustRead(t, dir)
	other := mustLoad(t, "", Request{})
	mustWrite(t, []byte(string(files[caCert])+string(other.CA)+string(files[caKey])), dir, caCert)
	id := mustLoad(t, dir, Request{})
	if got, want := string(id.CA), string(first.CA)+string(other.CA); got != want {
		t.Errorf("CA is\n%s\nwant\n%s", got, want)
	}
}

// TestWriteFilesError checks that nothing is left when a file cannot be replaced.
func TestWriteFilesError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustWrite(t, []byte("old"), dir, "a")
	if err := os.MkdirAll(filepath.Join(dir, "b", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	err := writeFiles(dir, []file{{"b", []byte("new")}, {"a", []byte("new")}})
	if err == nil {
		t.Fatal("replaced a folder by a file")
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "old" {
		t.Errorf("a is %q, %v, want old", data, err)
	}
	if temps, _ := filepath.Glob(filepath.Join(dir, ".*")); len(temps) > 0 {
		t.Errorf("left %v", temps)
	}
	if err := writeFiles(filepath.Join(dir, "none"), []file{{"a", nil}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want not exist", err)
	}
}
