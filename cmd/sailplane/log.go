package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// logging sends klog and its contextual loggers to a slog handler.
func logging(ctx context.Context, w io.Writer, verbosity int) context.Context {
	// logr's verbosity V(n) is slog's level -n.
	// At 0, what k8s.io modules log as information is left out too.
	level := slog.LevelWarn
	if verbosity > 0 {
		level = slog.Level(-verbosity)
	}
	handler := slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: verbosityName})
	logger := logr.FromSlogHandler(handler)
	// The k8s.io modules still use klog's global logger in places.
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("v", strconv.Itoa(verbosity)) // a number is a valid value
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	return klog.NewContext(ctx, logger)
}

// verbosityName writes the level of V(n) as Vn, where slog would write DEBUG+3.
func verbosityName(_ []string, a slog.Attr) slog.Attr {
	if level, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey && level < slog.LevelInfo {
		return slog.String(slog.LevelKey, fmt.Sprintf("V%d", -int(level)))
	}
	return a
}
