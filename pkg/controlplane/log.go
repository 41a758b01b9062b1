package controlplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"

	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// LibraryLog returns a logger for what k8s.io libraries log: problems only, one line for
// each, in bounded size. A logger that takes more than information gets everything. What
// the libraries log with a context arrives at the server's own logger ([Builder.Log]);
// for what they log with klog's global logger, which belongs to the program, call in main
//
//	klog.SetSlogLogger(controlplane.LibraryLog(logger))
//
// A server changes klog only in a program that has not configured it: what libraries of
// the server write as information is left out, and problems are written to the standard
// error in klog's format.
func LibraryLog(logger *slog.Logger) *slog.Logger {
	return slog.New(upstream.Problems(logger.Handler()))
}

// logger is where the server logs to.
func (s *Server) logger(ctx context.Context) *slog.Logger {
	logger := s.built.log
	if logger == nil {
		logger = logr.FromContextAsSlogLogger(ctx)
	}
	if logger == nil {
		logger = slog.Default()
	}
	return logger.With("server", s.built.name)
}

// forLibraries is the logger in the context of everything that the server runs.
func forLibraries(ctx context.Context, logger *slog.Logger) logr.Logger {
	if !upstream.Verbose(ctx, logger.Handler()) {
		upstream.QuietKlog()
	}
	return logr.FromSlogHandler(LibraryLog(logger).Handler())
}

// sayReady writes the one line that is no problem.
func (r *run) sayReady(ctx context.Context) {
	line := []any{"ms", time.Since(r.begun).Milliseconds()}
	if address := r.server.Address(); address != nil {
		line = append(line, "address", address.String())
	}
	r.log.InfoContext(ctx, "ready", line...)
}
