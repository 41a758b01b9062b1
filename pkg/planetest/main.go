package planetest

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Main runs the tests of a package with one plane, and returns the exit code:
//
//	var plane *planetest.Plane
//
//	func TestMain(m *testing.M) { os.Exit(planetest.Main(m, &plane)) }
//
// The parts are as for [Start]. Tests keep apart with [Plane.Namespace]. Errors of
// the plane are written to the standard error, and the exit code is then not 0.
func Main(m interface{ Run() int }, plane **Plane, parts ...controlplane.Part) (code int) {
	return Options{}.Main(m, plane, parts...)
}

// Main is [Main] with options.
func (o Options) Main(m interface{ Run() int }, plane **Plane, parts ...controlplane.Part) (code int) {
	complain := func(format string, args ...any) { fmt.Fprintf(os.Stderr, "planetest: "+format+"\n", args...) }
	dir, err := os.MkdirTemp("", "planetest")
	if err != nil {
		complain("%v", err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			complain("%v", err)
		}
	}()
	log := &journal{logf: complain}
	s, err := o.start(context.Background(), "TestMain", log.errors(), func() string { return dir }, parts)
	if err != nil {
		complain("%v", err)
		return 1
	}
	defer func() {
		if err := s.stop(); err != nil {
			complain("%v", err)
			code = max(code, 1)
		}
	}()
	*plane = newPlane(s)
	return m.Run()
}

// Namespace makes a namespace for a test and returns its name, which begins with
// that of the test. It is deleted when the test ends, without waiting.
func (p *Plane) Namespace(t TB) string {
	t.Helper()
	ctx, namespaces := contextOf(t), p.admin().Client().CoreV1().Namespaces()
	made, err := namespaces.Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: label(t.Name()) + "-"},
	}, metav1.CreateOptions{FieldManager: FieldManager})
	if err != nil {
		t.Fatalf("make a namespace: %v", err)
	}
	t.Cleanup(func() {
		t.Helper()
		err := namespaces.Delete(context.WithoutCancel(ctx), made.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete the namespace of the test: %v", err)
		}
	})
	return made.Name
}

// label is a name as DNS labels are (RFC 1123), with room for a suffix.
func label(name string) string {
	const longest = 50
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	if name = strings.Trim(name[:min(len(name), longest)], "-"); name == "" {
		return "test"
	}
	return name
}
