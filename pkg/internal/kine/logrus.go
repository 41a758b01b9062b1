package kine

import (
	"runtime"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// kinePackages is the prefix of every function that belongs to kine.
const kinePackages = "github.com/k3s-io/kine/"

// quietOnce makes quiet act once per process: there is one standard logger.
var quietOnce sync.Once //nolint:gochecknoglobals // what it guards is global

// quiet keeps kine's log lines off the program's standard error.
//
// kine logs through logrus's process-global standard logger, which a library
// cannot replace per instance: ten lines at every start, and on a refused
// transaction the whole request with the value in it, which may be a Secret
// (https://github.com/k3s-io/kine/blob/v0.16.4/pkg/server/kv.go). The standard
// logger is therefore given a formatter that formats entries made by kine as
// nothing and hands every other entry to the formatter found. Level, output
// and hooks stay as they are, so a program that uses logrus itself sees no
// difference. A program that calls logrus.SetFormatter later gets kine's lines
// back and nothing worse. Errors of kine's background work, which nobody else
// would report, go to klog; errors of requests reach their callers.
func quiet() {
	quietOnce.Do(func() {
		logrus.SetFormatter(&kineFilter{next: logrus.StandardLogger().Formatter})
	})
}

type kineFilter struct {
	next logrus.Formatter
}

// Format implements logrus.Formatter.
func (f *kineFilter) Format(entry *logrus.Entry) ([]byte, error) {
	caller := logCaller()
	if !strings.HasPrefix(caller, kinePackages) {
		return f.next.Format(entry)
	}
	if entry.Level <= logrus.ErrorLevel && !ofRequest(caller) && !ofStop(entry.Message) {
		klog.ErrorS(nil, "Datastore driver reported an error", "driver", "kine", "message", entry.Message)
	}
	return nil, nil
}

// ofRequest says that a function of kine serves a request.
func ofRequest(function string) bool {
	return strings.HasPrefix(function, kinePackages+"pkg/server.")
}

// ofStop recognises the complaints of work that a stop cut off.
func ofStop(message string) bool {
	return strings.Contains(message, "database is closed") || strings.Contains(message, "context canceled")
}

// logCaller returns the function that made the log entry being formatted.
func logCaller() string {
	var pcs [24]uintptr
	n := runtime.Callers(2, pcs[:])
	frames := runtime.CallersFrames(pcs[:n])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "github.com/sirupsen/logrus.") && !isOurs(frame.Function) {
			return frame.Function
		}
		if !more {
			return ""
		}
	}
}

func isOurs(function string) bool {
	return strings.Contains(function, "internal/kine.(*kineFilter)")
}
