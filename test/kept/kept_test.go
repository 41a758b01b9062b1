package kept_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/test/kept"
	"github.com/sailplane-dev/sailplane/test/program"
)

// binary is the present version, built once.
var binary string

func TestMain(m *testing.M) {
	if runtime.GOOS == "windows" {
		fmt.Fprintln(os.Stderr, "these tests stop processes as Unix does")
		return
	}
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) (err error) {
		binary, err = program.Sailplane(ctx, dir)
		return err
	}}.Run())
}

// subject is a copy of a kept data directory and the server that runs on it.
type subject struct {
	listing *kept.Listing
	dir     string
	server  *kept.Server
	config  *rest.Config
	client  dynamic.Interface
}

// TestKept starts the present version on copies of what earlier versions wrote:
// everything is there as it was, can be changed, and is there after a restart.
func TestKept(t *testing.T) {
	listings, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(listings) == 0 {
		t.Fatalf("no data is kept: %v", err)
	}
	archives, err := filepath.Glob(filepath.Join("testdata", "*.tar.gz"))
	if err != nil || len(archives) != len(listings) {
		t.Fatalf("%d archives and %d listings: each needs the other: %v", len(archives), len(listings), err)
	}
	for _, path := range listings {
		base := strings.TrimSuffix(path, ".json")
		t.Run(filepath.Base(base), func(t *testing.T) {
			t.Parallel()
			s := unpack(t, base)
			admin, err := kept.LoadKubeconfig(kept.Kubeconfig(s.dir)) // before a server writes another one
			if err != nil {
				t.Fatal(err)
			}
			s.start(t)
			s.checkObjects(t)
			s.checkAccess(t, admin)
			s.checkPast(t)
			s.checkWatch(t)
			s.checkWrites(t)
			s.checkRules(t)
			s.checkDeletion(t)
			s.checkRestart(t)
		})
	}
}

// unpack copies a kept directory to a place of which the version that wrote it
// knew nothing.
func unpack(t *testing.T, base string) *subject {
	t.Helper()
	s := &subject{dir: filepath.Join(t.TempDir(), "another place")}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := kept.Unpack(base+".tar.gz", s.dir); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.listing, err = kept.ReadListing(base + ".json"); err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts the present version on the directory.
func (s *subject) start(t *testing.T) {
	t.Helper()
	var err error
	if s.server, err = kept.Serve(t.Context(), binary, s.listing.Storage, s.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.server.Kill)
	if s.config, err = s.server.Admin(); err != nil {
		t.Fatal(err)
	}
	if s.client, err = dynamic.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
}

// checkRestart stops the server, starts another one, and finds the same.
func (s *subject) checkRestart(t *testing.T) {
	t.Helper()
	before, revision, err := kept.Settle(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.server.Stop(); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	after, now, err := kept.Take(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	report(t, "after a restart: ", kept.Differences(before, after))
	if now < revision {
		t.Errorf("after a restart the revision went back from %d to %d", revision, now)
	}
	if err := s.server.Stop(); err != nil {
		t.Fatal(err)
	}
}

func report(t *testing.T, when string, differences []string) {
	t.Helper()
	for _, d := range differences {
		t.Errorf("%s%s", when, d)
	}
}

// configMaps are those of the namespace that has history.
func (s *subject) configMaps() dynamic.ResourceInterface {
	return s.client.Resource(kept.ConfigMaps()).Namespace(kept.Namespace)
}

// in are the objects of a resource in that namespace.
func (s *subject) in(group, version, resource string) dynamic.ResourceInterface {
	gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	return s.client.Resource(gvr).Namespace(kept.Namespace)
}
