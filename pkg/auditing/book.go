package auditing

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/plugin/pkg/audit/log"

	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

// summaryPause is the time between two summaries of what was not written.
const summaryPause = time.Minute

// book writes events as lines, within a budget. Unlike the published back end
// (plugin/pkg/audit/log) it knows whose event a line is.
type book struct {
	out     io.Writer
	file    *file // nil: standard output
	format  Format
	chained bool
	bound   bound
	budget  *budget
	encoder runtime.Encoder

	mu     sync.Mutex
	open   bool
	tally  tally       // what was not written since the last summary
	timer  *time.Timer // of the next summary; nil: there is nothing to say
	timers sync.WaitGroup
}

// newBook makes the back end of a log, with the format that it has.
func newBook(l Log, format Format) *book {
	b := &book{
		out: os.Stdout, format: format, chained: l.Chain, bound: bound(l.MaxEvent),
		encoder: audit.Codecs.LegacyCodec(auditv1.SchemeGroupVersion),
	}
	if l.toStdout() {
		b.budget = newBudget(l, nil)
		return b
	}
	b.file = &file{path: l.Path, maxSize: l.MaxSize, maxBackups: l.MaxBackups, maxAge: l.MaxAge, chained: l.Chain, encode: b.encode}
	b.out, b.budget = b.file, newBudget(l, b.file.room)
	return b
}

// Run implements audit.Backend.
func (b *book) Run(<-chan struct{}) error {
	if b.file != nil {
		if err := b.file.open(); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = true
	return nil
}

// Shutdown implements audit.Backend.
func (b *book) Shutdown() {
	b.mu.Lock()
	b.open = false
	if b.timer != nil && b.timer.Stop() {
		b.timers.Done()
	}
	b.mu.Unlock()
	b.timers.Wait()
	b.summarize()
	if b.file != nil {
		b.file.close()
	}
}

// String implements audit.Backend.
func (*book) String() string { return log.PluginName }

// ProcessEvents implements audit.Sink. What is over a budget is no error of the log,
// but it is not recorded: only a request that must be refused for that has to know.
func (b *book) ProcessEvents(events ...*auditinternal.Event) bool {
	written := true
	for _, e := range events {
		line, err := b.line(e)
		if err == nil {
			if why := b.budget.admits(e, len(line), time.Now()); why != admitted {
				b.skip(e, len(line), why)
				written = false
				continue
			}
			_, err = b.out.Write(line)
		}
		if err != nil {
			audit.HandlePluginError(b.String(), err, e)
			written = false
		}
	}
	return written
}

// line is an event as it is written, no longer than its bound.
func (b *book) line(e *auditinternal.Event) ([]byte, error) {
	for most := b.bound.of(e); ; most /= 2 {
		cut := b.bound.fit(e, most)
		line, err := b.encode(cut)
		// What needs escapes is longer than it was.
		if err != nil || len(line) <= b.bound.of(cut) || most < leastEvent/8 {
			return line, err
		}
	}
}

// encode is an event as a line.
func (b *book) encode(e *auditinternal.Event) ([]byte, error) {
	if b.format == Legacy {
		return []byte(audit.EventString(e) + "\n"), nil
	}
	var out bytes.Buffer
	if b.chained {
		out.Grow(2 << 10) // few events are longer, with their place
	}
	if err := b.encoder.Encode(e, &out); err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	if b.chained {
		return room(out.Bytes(), len(e.Annotations) > 0), nil
	}
	return out.Bytes(), nil
}

// skip counts an event that is not written. A summary will tell.
func (b *book) skip(e *auditinternal.Event, n int, why reason) {
	metrics.Unwritten(string(why))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tally.add(e, n, why)
	if b.timer == nil && b.open {
		b.timers.Add(1)
		b.timer = time.AfterFunc(summaryPause, func() {
			defer b.timers.Done()
			b.summarize()
		})
	}
}

// summarize writes what was not written since the last summary, if anything was not.
func (b *book) summarize() {
	b.mu.Lock()
	t := b.tally
	b.tally, b.timer = tally{}, nil
	b.mu.Unlock()
	if t.events == 0 {
		return
	}
	e := t.event(time.Now())
	line, err := b.line(e)
	if err == nil {
		_, err = b.out.Write(line)
	}
	if err != nil {
		audit.HandlePluginError(b.String(), err, e)
	}
}
