package backup

import (
	"errors"
	"io"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/page"
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
	page.Page{
		Path: Path, Does: "backups on request", Methods: []string{http.MethodGet}, Misused: "a backup can only be read",
		Alone: &page.Alone{Busy: "another backup is being taken: one is taken at a time", Retry: 10},
		Serve: send,
	}.Declare(p.Root())
	return nil
}

// patience is how long a client may take to read what was sent last.
const patience = time.Minute

// send answers a request with a backup.
func send(w http.ResponseWriter, r *http.Request, root *controlplane.Plane) error {
	server := root.Server()
	info, err := Send(w, r, func(to io.Writer) (Info, error) { return Write(r.Context(), server, to) })
	if err != nil || info.Checksum == "" {
		return err
	}
	// The client has it, whatever is known of it: a full storage can be backed up.
	if err := server.NoteBackup(r.Context(), controlplane.Backup{Taken: info.Taken, Revision: info.Revision}); err != nil {
		klog.FromContext(r.Context()).Error(err, "Sent a backup, and could not note it: status and metrics name an older one")
	}
	return nil
}

// Send answers a request with the backup that a function writes. An error is to be answered: nothing was sent. A
// backup that could not be completed has no checksum, and the log says why.
func Send(w http.ResponseWriter, r *http.Request, write func(io.Writer) (Info, error)) (Info, error) {
	w.Header().Set("Content-Type", "application/zstd")
	sent := &sender{to: w, deadline: http.NewResponseController(w).SetWriteDeadline}
	info, err := write(sent)
	if err == nil || !sent.begun {
		return info, err
	}
	klog.FromContext(r.Context()).Error(err, "Could not complete a backup")
	_ = sent.deadline(time.Now()) // the answer is cut off; where that cannot be, its end is missing
	info.Checksum = ""
	return info, nil
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
