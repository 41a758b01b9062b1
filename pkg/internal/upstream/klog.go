package upstream

import (
	"flag"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"

	"k8s.io/klog/v2"
)

// quietOnce makes QuietKlog act once per process: klog has one configuration.
var quietOnce sync.Once //nolint:gochecknoglobals // what it guards is global

// QuietKlog leaves out of klog's output what the libraries of a server write there as
// information: some 40 lines in every start, by code that only knows klog's global
// logger. It also leaves out their [chatter].
//
// klog belongs to the program. One that has configured it, with a logger or with a
// flag, has decided what it wants to see: nothing changes. In others, everything else
// appears as before, byte for byte: the program's own lines of any severity, and all
// errors, which are cut when they are long, because clients choose much of what they
// say. A program may configure klog later: klog.SetLogger, klog.SetOutput and
// klog.LogToStderr win over what is done here. Nothing is taken back when servers stop.
//
// It is the output that is replaced and no logger set, because klog locks its output
// but not its logger: goroutines of the program may be logging.
// https://github.com/kubernetes/klog/blob/v2.140.0/contextual.go#L30
func QuietKlog() {
	quietOnce.Do(func() {
		flags := flag.NewFlagSet("klog", flag.ContinueOnError)
		klog.InitFlags(flags)
		if configured(flags) {
			return
		}
		// klog writes a line to the output of its severity and of all below it.
		klog.SetOutput(io.Discard)
		klog.SetOutputBySeverity("INFO", &output{to: func() io.Writer { return os.Stderr }})
		_ = flags.Set("stderrthreshold", "FATAL") // a valid value: what ends the process is written by klog itself
		klog.LogToStderr(false)
	})
}

// configured tells whether the program has configured klog.
func configured(flags *flag.FlagSet) bool {
	// With a logger, klog.V of a level that is off is not the zero value.
	// https://github.com/kubernetes/klog/blob/v2.140.0/klog.go#L1371
	if klog.V(math.MaxInt32) != (klog.Verbose{}) {
		return true
	}
	for name, value := range map[string]string{
		"logtostderr": "true", "alsologtostderr": "false", "stderrthreshold": "2", "one_output": "false",
		"v": "0", "vmodule": "", "skip_headers": "false", "log_file": "", "log_dir": "",
	} {
		if f := flags.Lookup(name); f == nil || f.Value.String() != value {
			return true
		}
	}
	return false
}

// output writes lines of klog, and leaves out those that QuietKlog names. klog calls
// it for one line at a time.
type output struct {
	to      func() io.Writer
	chatter chatter
}

// Write implements io.Writer.
func (o *output) Write(line []byte) (int, error) {
	// The header is Lmmdd hh:mm:ss.uuuuuu threadid file:line] with the severity L.
	header, text, found := strings.Cut(string(line), "] ")
	if !found || header[0] == 'F' {
		return len(line), nil // of a fatal error, which klog itself has written
	}
	if header[0] == 'E' && o.chatter.has(message(text)) || header[0] != 'E' && ofServer() {
		return len(line), nil
	}
	if header[0] == 'E' && len(line) > maxMessage {
		short := strings.TrimSuffix(string(line), "\n")
		if isPanic(text) {
			short = cutLines(short)
		} else {
			short = cut(short, maxMessage)
		}
		if _, err := io.WriteString(o.to(), short+"\n"); err != nil {
			return 0, err
		}
		return len(line), nil
	}
	return o.to().Write(line)
}

// isPanic tells whether a line of klog is about a panic, with the stack.
func isPanic(text string) bool {
	return strings.HasPrefix(text, `"Observed a panic"`) || strings.HasPrefix(text, "Observed a panic")
}

// message is what a line of klog says. A structured one is "message" err="error".
func message(text string) string {
	text = strings.TrimSuffix(text, "\n")
	if err, found := strings.CutPrefix(text, `"`+unhandled+`" err="`); found {
		err, _, _ = strings.Cut(err, `" logger="UnhandledError"`)
		return strings.TrimSuffix(err, `"`)
	}
	if strings.HasPrefix(text, `"`+postTimeout+`"`) && strings.HasSuffix(text, " result=null") {
		return postTimeout + ": <nil>"
	}
	if strings.HasPrefix(text, `"`+cutOff+`"`) {
		return cutOff
	}
	return strings.TrimPrefix(text, `"`)
}

// ofServer tells whether a module that a server is made of is logging. Modules that
// programs use as well, such as client-go, log for who calls them.
func ofServer() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		frame, more := frames.Next()
		switch {
		case below(frame.Function, "k8s.io/klog/v2", "github.com/go-logr/logr", "log/slog",
			"k8s.io/client-go", "k8s.io/apimachinery", "k8s.io/component-base", "k8s.io/utils"):
		default:
			return below(frame.Function, "k8s.io/apiserver", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator",
				"github.com/sailplane-dev/sailplane/pkg")
		}
		if !more {
			return false
		}
	}
}

// below tells whether a function is of a package of one of the modules.
func below(function string, modules ...string) bool {
	for _, module := range modules {
		if rest, found := strings.CutPrefix(function, module); found && (rest[0] == '/' || rest[0] == '.') {
			return true
		}
	}
	return false
}
