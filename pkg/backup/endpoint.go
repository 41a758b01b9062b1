package backup

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Path is where the root plane of a server serves a backup, to those who may get this path: group
// system:masters, and who has a rule with it in nonResourceURLs. Who may read it may read every object
// of every plane.
const Path = "/backup"

// Endpoint serves a backup of all planes at [Path] of the root plane, one at a time: "sailplane backup"
// asks for it.
type Endpoint struct{}

// PartName implements the name errors use.
func (Endpoint) PartName() string { return "backup.Endpoint" }

// Install implements controlplane.Part.
func (Endpoint) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the path.
func (Endpoint) InstallServer(p *controlplane.ServerPlan) error {
	root, e := p.Root(), &endpoint{}
	root.Handle(Path, e)
	root.LongRunning(func(r *http.Request, _ *apirequest.RequestInfo) bool { return r.URL.Path == Path })
	root.Work(controlplane.Work{Name: "backups on request", Run: func(_ context.Context, plane *controlplane.Plane) error {
		e.server.Store(plane.Server())
		return nil
	}})
	return nil
}

type endpoint struct {
	server atomic.Pointer[controlplane.Server] // nil before it works
	busy   atomic.Bool
}

// patience is how long a client may take to read what was sent last.
const patience = time.Minute

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	server := e.server.Load()
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		refuse(w, r, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, schema.GroupResource{}, "",
			"a backup can only be read", 0, true))
		return
	case server == nil:
		w.Header().Set("Retry-After", "1")
		refuse(w, r, apierrors.NewServiceUnavailable("the server is starting"))
		return
	case !e.busy.CompareAndSwap(false, true):
		w.Header().Set("Retry-After", "10")
		refuse(w, r, apierrors.NewTooManyRequests("another backup is being taken: one is taken at a time", 10))
		return
	}
	defer e.busy.Store(false)
	w.Header().Set("Content-Type", "application/zstd")
	sent := &sender{to: w, deadline: http.NewResponseController(w).SetWriteDeadline}
	info, err := Write(r.Context(), server, sent)
	if err == nil {
		err = server.NoteBackup(r.Context(), controlplane.Backup{Taken: info.Taken, Revision: info.Revision})
	}
	switch {
	case err == nil:
	case sent.begun:
		klog.FromContext(r.Context()).Error(err, "Could not complete a backup")
		_ = sent.deadline(time.Now()) // the answer is cut off; where that cannot be, its end is missing
	default:
		refuse(w, r, apierrors.NewInternalError(err))
	}
}

// sender sends a backup to a client that has to read it.
type sender struct {
	to       io.Writer
	deadline func(time.Time) error
	begun    bool
}

// Write implements io.Writer.
func (s *sender) Write(b []byte) (int, error) {
	s.begun = true
	if err := s.deadline(time.Now().Add(patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return s.to.Write(b)
}

// refuse answers with an error as the API does.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}
