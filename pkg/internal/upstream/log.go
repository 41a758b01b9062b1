package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// Problems returns a handler for what libraries log. They write dozens of lines of
// information in every start, so it passes on what is above information only, in
// lines of a bounded size, and without what [chatter] leaves out. A handler that also
// takes what is below information is asked for more: it gets every line, in bounded size
// too, unless it takes V(8), at which Kubernetes logs what requests contain.
func Problems(h slog.Handler) slog.Handler {
	if p, ok := h.(*problems); ok {
		return p
	}
	return &problems{Handler: h, chatter: &chatter{}}
}

// Verbose tells whether a handler takes more than information.
func Verbose(ctx context.Context, h slog.Handler) bool { return h.Enabled(ctx, slog.LevelInfo-1) }

// unbounded tells whether a handler takes the contents of requests.
func unbounded(ctx context.Context, h slog.Handler) bool { return h.Enabled(ctx, -8) }

type problems struct {
	slog.Handler
	chatter *chatter
}

// Enabled implements slog.Handler.
func (p *problems) Enabled(ctx context.Context, level slog.Level) bool {
	return (level > slog.LevelInfo || Verbose(ctx, p.Handler)) && p.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (p *problems) Handle(ctx context.Context, r slog.Record) error {
	if unbounded(ctx, p.Handler) {
		return p.Handler.Handle(ctx, r)
	}
	what := r.Message
	short := slog.NewRecord(r.Time, r.Level, cut(r.Message, maxMessage), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		a = bounded(a)
		if a.Key == "err" && (r.Message == unhandled || ofLease(r.Message)) || a.Key == "result" && r.Message == postTimeout {
			what = strings.TrimPrefix(r.Message+": "+a.Value.String(), unhandled+": ")
		}
		short.AddAttrs(a)
		return true
	})
	if !Verbose(ctx, p.Handler) && p.chatter.has(what) {
		return nil
	}
	return p.Handler.Handle(ctx, short)
}

// WithAttrs implements slog.Handler.
func (p *problems) WithAttrs(attrs []slog.Attr) slog.Handler {
	if !unbounded(context.Background(), p.Handler) {
		attrs = all(attrs)
	}
	return &problems{Handler: p.Handler.WithAttrs(attrs), chatter: p.chatter}
}

// WithGroup implements slog.Handler.
func (p *problems) WithGroup(name string) slog.Handler {
	return &problems{Handler: p.Handler.WithGroup(name), chatter: p.chatter}
}

// Clients choose much of what is logged of their requests, such as the path and the
// user agent, and libraries log whole objects. In bytes.
const (
	maxValue   = 512
	maxMessage = 2 << 10
	maxPanic   = 16 << 10 // with the stack
)

// bounded is the attribute as a text of a bounded size, unless it is a number or
// the like.
func bounded(a slog.Attr) slog.Attr {
	shorten := func(text string) string { return cut(text, maxValue) }
	if a.Key == "panic" || a.Key == "stacktrace" {
		shorten = cutLines
	}
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindGroup:
		a.Value = slog.GroupValue(all(a.Value.Group())...)
	case slog.KindString:
		a.Value = slog.StringValue(shorten(a.Value.String()))
	case slog.KindAny:
		a.Value = slog.StringValue(shorten(textOf(a.Value.Any())))
	}
	return a
}

// all are the attributes in bounded size, in a new slice.
func all(attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = bounded(a)
	}
	return out
}

// textOf is a value as klog writes it.
func textOf(value any) string {
	switch v := value.(type) {
	case error:
		return fmt.Sprint(v)
	case []byte:
		return string(v)
	}
	return fmt.Sprintf("%+v", value)
}

// cut shortens a text to a number of bytes, and says so.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("... (%d bytes)", len(text))
}

// cutLines shortens what a panic said, with the stack below it, of which no line is long.
func cutLines(text string) string {
	if len(text) <= maxValue {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		short := cut(strings.TrimSuffix(line, "\n"), maxValue)
		b.WriteString(short)
		if strings.HasSuffix(line, "\n") {
			b.WriteByte('\n')
		}
		if b.Len() > maxPanic {
			break
		}
	}
	return cut(b.String(), maxPanic)
}
