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

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// logging returns a context whose logger writes what the configuration says: at 0
// problems only, from the server and the libraries below it, one line each.
func logging(ctx context.Context, w io.Writer, c config.Log) context.Context {
	// logr's verbosity V(n) is slog's level -n.
	options := &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: verbosityName}
	var handler slog.Handler
	if c.Format == config.JSON {
		// Who reads JSON wants to find the line that says ready there, too.
		options.Level = slog.LevelInfo
	}
	if c.Verbosity > 0 {
		options.Level = slog.Level(-c.Verbosity)
	}
	if c.Format == config.JSON {
		handler = slog.NewJSONHandler(w, options)
	} else {
		handler = slog.NewTextHandler(w, options)
	}
	logger := slog.New(handler)
	// The k8s.io modules still use klog's global logger in places.
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("v", strconv.Itoa(c.Verbosity)) // a number is a valid value
	klog.SetSlogLogger(controlplane.LibraryLog(logger))
	return logr.NewContextWithSlogLogger(ctx, logger)
}

// verbosityName writes the level of V(n) as Vn, where slog would write DEBUG+3.
func verbosityName(_ []string, a slog.Attr) slog.Attr {
	if level, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey && level < slog.LevelInfo {
		return slog.String(slog.LevelKey, fmt.Sprintf("V%d", -int(level)))
	}
	return a
}
