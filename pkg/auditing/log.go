package auditing

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/apiserver/plugin/pkg/audit/log"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Format is how an event is written.
type Format string

const (
	// JSON writes one audit.k8s.io/v1 Event per line.
	JSON Format = log.FormatJson
	// Legacy writes one line of key="value" pairs per event.
	Legacy Format = log.FormatLegacy
)

// Log writes audit events to a file.
type Log struct {
	// Name distinguishes several logs. Empty: "log".
	Name string
	// Policy says what is recorded; PolicyFile is a file that does, and is followed:
	// what is changed is in force within seconds, for requests that begin then. A file
	// that cannot be used changes nothing and is logged. Empty: Default.
	Policy     *auditv1.Policy
	PolicyFile string
	// Read is how PolicyFile is read. A program whose own file has the policy as a
	// section returns that section, as the content of a PolicyFile. It is called every
	// second and returns the same bytes until the policy changes. Parts that share a
	// function call it at the same time. Empty: os.ReadFile.
	Read func(file string) ([]byte, error)
	// Path is the file. It is created with mode 0600, and missing folders with
	// 0700. "-" or empty: standard output.
	Path string
	// MaxSize is how many bytes the file may have: before it grows larger it is
	// renamed, audit.log to audit-2006-01-02T15-04-05.000.log. Empty: it grows
	// without bound.
	MaxSize int64
	// MaxBackups is how many renamed files are kept. Empty: all.
	MaxBackups int
	// MaxAge is how long renamed files are kept. Empty: for ever.
	MaxAge time.Duration
	// Format is JSON or Legacy. Empty: JSON.
	Format Format
	// Mode says whether requests wait for the file. Empty: Blocking.
	Mode Mode
}

// PartName implements the name errors use.
func (Log) PartName() string { return "auditing.Log" }

// Install declares the back end. Build reads the policy, and the file is not
// touched before the server runs.
func (l Log) Install(p *controlplane.Plan) error {
	mode, format := cmp.Or(l.Mode, Blocking), cmp.Or(l.Format, JSON)
	p.Read(func() error {
		name := cmp.Or(l.Name, "log")
		rules, err := chosen{l.Policy, l.PolicyFile, l.Read}.declare(p, name)
		if err != nil {
			return err
		}
		// A file gains nothing from batches: the buffer only keeps requests from waiting.
		b := mode.wrap(l.backend(format), buffered.BatchConfig{BufferSize: bufferSize, MaxBatchSize: 1})
		p.Audit(name, b, rules)
		return nil
	})
	return errors.Join(mode.check(), l.check(format))
}

// backend is the back end without its mode.
func (l Log) backend(format Format) audit.Backend {
	if l.Path == "" || l.Path == "-" {
		return written(os.Stdout, format)
	}
	f := &file{path: l.Path, maxSize: l.MaxSize, maxBackups: l.MaxBackups, maxAge: l.MaxAge}
	return &logged{written(f, format), f}
}

// check refuses values without a meaning.
func (l Log) check(format Format) error {
	var errs []error
	if format != JSON && format != Legacy {
		errs = append(errs, fmt.Errorf("format %q: want %s or %s", format, JSON, Legacy))
	}
	if l.MaxSize < 0 || l.MaxBackups < 0 || l.MaxAge < 0 {
		errs = append(errs, fmt.Errorf("MaxSize is %d, MaxBackups %d, MaxAge %v: none may be negative", l.MaxSize, l.MaxBackups, l.MaxAge))
	}
	if l.MaxSize == 0 && (l.MaxBackups > 0 || l.MaxAge > 0) {
		errs = append(errs, errors.New("MaxBackups and MaxAge need MaxSize: set it, such as 100 << 20"))
	}
	return errors.Join(errs...)
}

// written is the published back end over a writer, which gets one write per event.
func written(w io.Writer, format Format) audit.Backend {
	return log.NewBackend(w, string(format), auditv1.SchemeGroupVersion)
}

// logged opens and closes the file of the published back end.
type logged struct {
	audit.Backend
	file *file
}

// Run implements audit.Backend.
func (l *logged) Run(stop <-chan struct{}) error {
	if err := l.file.open(); err != nil {
		return err
	}
	return l.Backend.Run(stop)
}

// Shutdown implements audit.Backend.
func (l *logged) Shutdown() {
	l.Backend.Shutdown()
	l.file.close()
}
