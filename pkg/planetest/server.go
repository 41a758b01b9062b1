package planetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// server is the running server of a plane, which all views of the plane share.
type server struct {
	config     *rest.Config
	kubeconfig string
	plane      *controlplane.Plane
	changes    signal.Change // when an object of the plane changes
	scheme     *runtime.Scheme
	revision   int64 // of the storage, when the plane was ready
	end        func()
	done       chan struct{}
	err        error // of Run, once done
	tag        tag
}

// startPatience and stopPatience are how long a plane may take on a busy machine.
const (
	startPatience = 2 * time.Minute
	stopPatience  = 2 * time.Minute
)

// start runs a server until stop. The directory is asked for when a file is needed.
func (o Options) start(ctx context.Context, name string, log *slog.Logger, dir func() string, given []controlplane.Part) (*server, error) {
	parts := o.parts(given)
	if o.Storage == nil {
		o.Storage = memory.Store{}
	}
	if o.Scheme == nil {
		o.Scheme = runtime.NewScheme()
	}
	s := &server{scheme: o.Scheme, done: make(chan struct{}), tag: tag{name + " " + rand.Text()[:8]}}
	parts = append(parts, controlplane.PartFunc(s.install))
	b := controlplane.New("planetest").Storage(o.Storage).Log(log)
	if o.Kubeconfig {
		s.kubeconfig = filepath.Join(dir(), "kubeconfig")
		b = b.Listen("127.0.0.1:0")
		parts = merge([]controlplane.Part{authn.Admin{Kubeconfig: s.kubeconfig}}, parts)
	}
	built, err := b.With(parts...).Build()
	if err != nil {
		return nil, fmt.Errorf("build the plane: %w", err)
	}
	s.config = built.ClientConfig()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s.end = end
	s.tag.run(life, func(life context.Context) {
		go func() {
			defer close(s.done)
			s.err = built.Run(life)
		}()
	})
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("the plane was not ready after %v", startPatience))
	defer cancel()
	select {
	case <-built.Ready():
		err = s.recordStart(ctx)
	case <-s.done:
		return nil, fmt.Errorf("start the plane: %w", s.err)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the plane: %w", err), s.stop())
	}
	return s, nil
}

// recordStart notes the last revision that the start wrote.
func (s *server) recordStart(ctx context.Context) error {
	feed := s.plane.Feed()
	if err := feed.CatchUp(ctx); err != nil {
		return err
	}
	for o := range feed.All() {
		s.revision = max(s.revision, o.Revision)
	}
	return nil
}

// install is the part that gives the server its plane.
func (s *server) install(p *controlplane.Plan) error {
	p.Wrap(controlplane.Outermost, "planetest", s.tag.wrap)
	p.Feed()
	p.Work(controlplane.Work{Name: "plane under test", Start: func(_ context.Context, plane *controlplane.Plane) error {
		s.plane = plane
		plane.Feed().OnChange(func(_, _ *feed.Object) { s.changes.Announce() })
		return nil
	}})
	return nil
}

// stop stops the server, and returns its error, or the goroutines that it left.
func (s *server) stop() error {
	s.end()
	select {
	case <-s.done:
	case <-time.After(stopPatience):
		left, err := s.tag.goroutines()
		return errors.Join(fmt.Errorf("the plane did not stop within %v; its goroutines are:\n%q", stopPatience, left), err)
	}
	if s.err != nil {
		return fmt.Errorf("the plane ended: %w", s.err)
	}
	return s.tag.ended()
}
