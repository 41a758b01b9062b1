package ship

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// imageConfig is what an image says about running it.
// https://github.com/opencontainers/image-spec/blob/main/config.md
type imageConfig struct {
	User         string
	ExposedPorts map[string]struct{}
	Entrypoint   []string
	Cmd          []string
	Volumes      map[string]struct{}
	Labels       map[string]string
	StopSignal   string
}

const (
	volume = "/var/lib/sailplane"
	nobody = 65532
)

// TestImage makes the image of a release and runs it as a container: with its
// user, a root that cannot be written to, and a volume.
func TestImage(t *testing.T) {
	needsProgram(t, "buildah")
	if os.Geteuid() != 0 {
		needs(t, errors.New("the right to mount: this test is run as root"))
	}
	dist, storage := t.TempDir(), t.TempDir()
	pack(t, filepath.Join(dist, "sailplane_v0.1.2_linux_"+runtime.GOARCH+".tar.gz"))
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, []byte("these are trusted\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// Its own storage, with the driver that works on any file system.
	buildah := []string{"buildah", "--root", storage, "--runroot", filepath.Join(storage, "run"), "--storage-driver", "vfs"}
	output(t, repository(t), "make", "image", "DIST="+dist, "ROOTS="+roots, "IMAGE=sailplane-test", "BUILDER="+strings.Join(buildah, " "))
	run := func(args ...string) string {
		return strings.TrimSpace(output(t, dist, buildah[0], append(buildah[1:], args...)...))
	}
	var image struct {
		OCIv1 struct {
			Architecture, OS string
			Config           imageConfig
		}
	}
	if err := json.Unmarshal([]byte(run("inspect", "--type", "image", "sailplane-test")), &image); err != nil {
		t.Fatal(err)
	}
	got := image.OCIv1.Config
	if version := got.Labels["org.opencontainers.image.version"]; version != "v0.1.2" {
		t.Errorf("the label says version %q, want that of the release", version)
	}
	got.Labels = nil
	want := imageConfig{
		User:         "65532:65532",
		ExposedPorts: map[string]struct{}{"6443/tcp": {}},
		Entrypoint:   []string{"/sailplane"},
		Cmd:          []string{"serve", "--data-dir", volume, "--listen", "0.0.0.0:6443"},
		Volumes:      map[string]struct{}{volume: {}},
		StopSignal:   "SIGTERM",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if platform := image.OCIv1.OS + "/" + image.OCIv1.Architecture; platform != "linux/"+runtime.GOARCH {
		t.Errorf("the platform is %s", platform)
	}

	container := run("from", "sailplane-test")
	root := run("mount", container)
	t.Cleanup(func() { run("umount", container) })
	if diff := cmp.Diff(map[string]string{
		"etc": "0", "etc/ssl": "0", "etc/ssl/certs": "0", "etc/ssl/certs/ca-certificates.crt": "0 these are trusted\n",
		"sailplane": "0", "LICENSE": "0", "THIRD-PARTY-LICENSES": "0", "var": "0", "var/lib": "0", "var/lib/sailplane": "65532",
	}, tree(t, root)); diff != "" {
		t.Errorf("owners and certificates (-want +got):\n%s", diff)
	}
	serveFrom(t, root, append(got.Entrypoint, got.Cmd...))
}

// pack makes an archive like that of a release.
func pack(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewWriterLevel(f, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(zip)
	for name, file := range map[string]struct {
		from string
		mode int64
	}{
		"sailplane": {sailplane, 0o755},
		"LICENSE":   {filepath.Join(repository(t), "LICENSE"), 0o644},
		// The image only passes it on.
		"THIRD-PARTY-LICENSES": {filepath.Join(repository(t), "LICENSE"), 0o644},
		"README.md":            {filepath.Join(repository(t), "README.md"), 0o644},
	} {
		content, err := os.ReadFile(file.from)
		if err != nil {
			t.Fatal(err)
		}
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: file.mode, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// tree is the owner of each file of an image, and what the certificates are.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	owners := map[string]string{}
	if err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		owners[rel] = strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))
		if filepath.Ext(name) == ".crt" {
			content, err := os.ReadFile(name)
			owners[rel] += " " + string(content)
			return err
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return owners
}

// serveFrom runs the command of an image in its file system, as a runtime does
// that is told to make it read-only, but on a port that is free.
func serveFrom(t *testing.T, root string, command []string) {
	t.Helper()
	data := t.TempDir()
	if err := os.Chown(data, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	const script = `set -e
root=$1 data=$2; shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount --bind "$data" "$root` + volume + `"
exec chroot --userspec=65532:65532 --groups= "$root" "$@"`
	args := append([]string{"--mount", "sh", "-c", script, "sh", root, data}, command...)
	for i := range args {
		args[i] = strings.Replace(args[i], "0.0.0.0:6443", "127.0.0.1:0", 1)
	}
	s := start(t, exec.Command("unshare", args...))
	request(t, filepath.Join(data, "admin.kubeconfig"), "GET", "/readyz", "")
	s.stop(s.cmd.Process.Pid)
}
