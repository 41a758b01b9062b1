package auditing

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
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
	// MaxEvent is how many bytes an event may have. Of a larger one the bodies are left
	// out, then long fields are cut; its annotation audit.sailplane.dev/truncated names
	// them and their bytes. At least 4 KiB. Empty: 8 KiB, and 100 KiB with bodies.
	MaxEvent int
	// StrangerBytes is how many bytes a day those may add together whom the server does
	// not know: requests that are answered 401, and 403 for system:anonymous. More are
	// counted, in a summary once a minute, and not written. [controlplane.Unlimited]:
	// no bound. Empty: a hundredth of MaxSize*(MaxBackups+1); 10 MiB where that is not
	// bounded.
	StrangerBytes int64
	// MaxSize is how many bytes the file may have: before it grows larger it is
	// renamed, audit.log to audit-2006-01-02T15-04-05.000.log. Empty: it grows
	// without bound.
	MaxSize int64
	// MaxBackups is how many renamed files are kept. Empty: all.
	MaxBackups int
	// MaxAge is how long renamed files are kept. Empty: for ever.
	MaxAge time.Duration
	// Keep is how long an event is kept where MaxBackups would remove it sooner. One user,
	// or the service accounts of one namespace, may have as many bytes in the log as it
	// has free: half of it alone, a third each if there are two. What they cause beyond
	// that is counted, in a summary once a minute, and not written. A thousandth of the
	// log is free for everybody, however full it is. MaxAge bounds it. Empty: no promise,
	// the oldest file goes when there are too many.
	Keep time.Duration
	// Chain has each line carry its number and the SHA-256 of the line before, as the
	// annotation audit.sailplane.dev/chain, over renamed files and restarts: [Verify]
	// finds a line that was removed, changed or added. Only one server writes to Path.
	Chain bool
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
		b := newBook(l, format)
		unplaced := func(e *auditinternal.Event, why reason) { b.skip(e, weigh(e)+frame, why) }
		p.Audit(name, mode.wrap(b, bound(l.MaxEvent), buffered.BatchConfig{MaxBatchSize: 1}, unplaced), rules)
		return nil
	})
	return errors.Join(mode.check(), l.check(format))
}

// toStdout tells whether the log is standard output.
func (l Log) toStdout() bool { return l.Path == "" || l.Path == "-" }

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
	if l.Keep < 0 || l.StrangerBytes < controlplane.Unlimited {
		errs = append(errs, fmt.Errorf("field Keep is %v, StrangerBytes %d: want 0 or more, or Unlimited", l.Keep, l.StrangerBytes))
	}
	if l.Chain && (format != JSON || l.toStdout()) {
		errs = append(errs, fmt.Errorf("field Chain: is in a file of format %s only: set Path and Format, or leave Chain out", JSON))
	}
	errs = append(errs, bound(l.MaxEvent).check())
	return errors.Join(errs...)
}
