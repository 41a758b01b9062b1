package kine

import (
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// quietOnce makes quiet act once per process: there is one standard logger.
var quietOnce sync.Once //nolint:gochecknoglobals // the logger it guards is global

// quiet keeps what kine and its drivers log off the program's standard error.
//
// They log through logrus's process-global standard logger, which a library
// cannot replace per instance: every statement that was slow, with the value in
// it, which may be a Secret. The standard logger is given a formatter that
// formats their entries as nothing and hands every other entry to the previous
// formatter. Level, output and hooks stay as they are, so a program that uses
// logrus itself sees no difference. Errors of background work, which nothing
// else reports, go to klog; errors of requests reach their callers.
func quiet() {
	quietOnce.Do(func() {
		logrus.SetFormatter(&filter{
			next:     logrus.StandardLogger().Formatter,
			userinfo: regexp.MustCompile(`://[^\s/"'@]*@`),
		})
	})
}

type filter struct {
	next logrus.Formatter
	// userinfo matches the credentials of a URL.
	userinfo *regexp.Regexp
}

// Format implements logrus.Formatter.
func (f *filter) Format(entry *logrus.Entry) ([]byte, error) {
	caller := logCaller()
	if !strings.HasPrefix(caller, "github.com/k3s-io/kine/") && !strings.HasPrefix(caller, "github.com/t4db/t4") {
		return f.next.Format(entry)
	}
	if entry.Level <= logrus.ErrorLevel && !ofRequest(caller) && !ofStop(entry.Message) {
		klog.ErrorS(nil, "Storage driver reported an error", "driver", "kine",
			"message", f.userinfo.ReplaceAllString(entry.Message, "://xxxxx@"))
	}
	return nil, nil
}

// ofRequest tells whether a function of kine serves a request.
func ofRequest(function string) bool {
	return strings.HasPrefix(function, "github.com/k3s-io/kine/pkg/server.") || strings.HasSuffix(function, ".(*Generic).Insert")
}

// ofStop recognises errors of work that a stop cut off. A driver ends an
// operation with a deadline in the past.
func ofStop(message string) bool {
	texts := []string{"database is closed", "context canceled", "connection closed", "i/o timeout"}
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(message, text) })
}

// logCaller returns the function that made the log entry being formatted.
func logCaller() string {
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		isOurs := strings.Contains(frame.Function, "storage/kine.(*filter)")
		if !isOurs && !strings.HasPrefix(frame.Function, "github.com/sirupsen/logrus.") {
			return frame.Function
		}
		if !more {
			return ""
		}
	}
}
