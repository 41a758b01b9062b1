package main

import (
	"flag"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// setKlog has klog's global logger, which the k8s.io modules still use in
// places, write where the contextual logger writes.
func setKlog(logger logr.Logger, verbosity int) {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("v", strconv.Itoa(verbosity)) // a number is a valid value
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
}
