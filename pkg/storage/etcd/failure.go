package etcd

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// failure is the error that stopped etcd. etcd reports it with a fatal or
// panicking log entry, which would end the process; here the entry ends the
// goroutine that wrote it, and is kept.
type failure struct {
	once     sync.Once
	happened chan struct{}
	cause    error
	// started: from here on errors are no longer returned by the start.
	started atomic.Bool
}

func newFailure() *failure { return &failure{happened: make(chan struct{})} }

// err returns what happened, or nil.
func (f *failure) err() error {
	select {
	case <-f.happened:
		return f.cause
	default:
		return nil
	}
}

// logger returns the logger for an etcd in the directory: errors go to klog,
// warnings and errors that the start returns anyway to its second level, the
// rest nowhere.
func (f *failure) logger(dir string) *zap.Logger {
	return zap.New(&klogCore{dir: dir, started: &f.started}, zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// earlyElection begins the message of a panic: an election comes while the member
// replays its log, and etcd already dropped the first entry of the log from
// memory, so raft cannot search it for a change of members. Only a member that
// has replayed its own joining gets here, and there are no others, so there is no
// change, and the election goes on
// (https://github.com/etcd-io/raft/blob/v3.6.0/raft.go, hasUnappliedConfChanges).
const earlyElection = "error scanning unapplied entries"

// OnWrite implements zapcore.CheckWriteHook. If it returns, so does the call
// that wrote the entry.
func (f *failure) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if !f.started.Load() && strings.HasPrefix(entry.Message, earlyElection) {
		return
	}
	f.once.Do(func() {
		f.cause = entryError(entry.Message, fields)
		close(f.happened)
	})
	runtime.Goexit()
}

// entryError turns a log entry into an error: its message, its paths and the
// error it carries.
func entryError(message string, fields []zapcore.Field) error {
	var errs []error
	for _, field := range fields {
		switch {
		case field.Type == zapcore.ErrorType:
			if err, ok := field.Interface.(error); ok {
				errs = append(errs, err)
			}
		case field.Type == zapcore.StringType && (field.Key == "path" || field.Key == "dir"):
			message += " " + field.String
		}
	}
	if len(errs) == 0 {
		return errors.New(message)
	}
	return fmt.Errorf("%s: %w", message, errors.Join(errs...))
}

// notYet is an error that every new etcd logs, to try again 4 s later: nothing
// was written yet that tells the version.
const notYet = "failed to update storage version"

// klogCore writes etcd's log entries to klog.
type klogCore struct {
	dir     string
	started *atomic.Bool
	fields  []zapcore.Field
}

// Enabled implements zapcore.Core.
func (c *klogCore) Enabled(level zapcore.Level) bool {
	return level >= zapcore.ErrorLevel || level == zapcore.WarnLevel && klog.V(2).Enabled()
}

// With implements zapcore.Core.
func (c *klogCore) With(fields []zapcore.Field) zapcore.Core {
	return &klogCore{dir: c.dir, started: c.started, fields: append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

// Check implements zapcore.Core.
func (c *klogCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) {
		return checked
	}
	return checked.AddCore(entry, c)
}

// Write implements zapcore.Core.
func (c *klogCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, field := range append(c.fields[:len(c.fields):len(c.fields)], fields...) {
		field.AddTo(values)
	}
	if entry.Level == zapcore.WarnLevel || !c.started.Load() || entry.Message == notYet {
		klog.V(2).InfoS("Embedded etcd warns", "dir", c.dir, "message", entry.Message, "details", values.Fields)
		return nil
	}
	klog.ErrorS(nil, "Embedded etcd reports an error", "dir", c.dir, "message", entry.Message, "details", values.Fields)
	return nil
}

// Sync implements zapcore.Core.
func (c *klogCore) Sync() error { return nil }
