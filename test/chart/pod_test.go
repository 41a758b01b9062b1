package chart

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// pod is what a kubelet would make of the pod that the chart describes: its volumes are
// folders, with the owners and the modes that they have in a pod.
type pod struct {
	container corev1.Container
	security  *corev1.PodSecurityContext
	folders   map[string]string // of mounts
	inside    *strings.Replacer // paths in the container to those here
}

// run makes the pod of a StatefulSet. Secrets are files by the name of the Secret.
func run(t *testing.T, set *appsv1.StatefulSet, config *corev1.ConfigMap, secrets map[string]map[string]string) *pod {
	t.Helper()
	template := set.Spec.Template.Spec.DeepCopy()
	for _, claim := range set.Spec.VolumeClaimTemplates {
		template.Volumes = append(template.Volumes, corev1.Volume{Name: claim.Name})
	}
	return prepare(t, template, config, secrets)
}

// prepare makes a pod.
func prepare(t *testing.T, template *corev1.PodSpec, config *corev1.ConfigMap, secrets map[string]map[string]string) *pod {
	t.Helper()
	p := &pod{container: template.Containers[0], security: template.SecurityContext, folders: map[string]string{}}
	volumes := map[string]corev1.Volume{}
	for _, v := range template.Volumes {
		volumes[v.Name] = v
	}
	mounts := slices.Clone(p.container.VolumeMounts)
	// Of paths that begin alike, the longest is replaced.
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return cmp.Compare(len(b.MountPath), len(a.MountPath)) })
	var replaced []string
	for _, m := range mounts {
		// Not a folder of the test's: its user may not enter those.
		dir, err := os.MkdirTemp("", "sailplane-pod-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		p.folders[m.MountPath] = dir
		replaced = append(replaced, m.MountPath, dir)
	}
	p.inside = strings.NewReplacer(replaced...)
	for _, m := range mounts {
		volume, is := volumes[m.Name]
		if !is {
			t.Fatalf("there is no volume for the mount %s", m.Name)
		}
		p.fill(t, p.folders[m.MountPath], volume, config, secrets)
	}
	return p
}

// fill makes the content of a volume.
func (p *pod) fill(t *testing.T, dir string, volume corev1.Volume, config *corev1.ConfigMap, secrets map[string]map[string]string) {
	t.Helper()
	var files map[string]string
	mode := os.FileMode(0o644)
	switch {
	case volume.ConfigMap != nil:
		if volume.ConfigMap.Name != config.Name {
			t.Fatalf("the pod mounts ConfigMap %s, the chart has %s", volume.ConfigMap.Name, config.Name)
		}
		files = config.Data
	case volume.Secret != nil:
		files = secrets[volume.Secret.SecretName]
		if len(files) == 0 {
			t.Fatalf("the pod mounts Secret %s, which is not there", volume.Secret.SecretName)
		}
		if items := volume.Secret.Items; len(items) > 0 {
			all := files
			files = map[string]string{}
			for _, item := range items {
				content, is := all[item.Key]
				if !is {
					t.Fatalf("Secret %s has no key %s", volume.Secret.SecretName, item.Key)
				}
				files[item.Path] = content
			}
		}
		if volume.Secret.DefaultMode != nil {
			mode = os.FileMode(*volume.Secret.DefaultMode)
		}
	default: // made for the pod, and it may write there because of its group
		p.own(t, dir, 0o775|os.ModeSetgid)
		return
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		write(t, path, p.inside.Replace(content))
		p.own(t, path, mode)
	}
	p.own(t, dir, 0o755)
}

// own gives a file to root and to the group of the pod. Only root can: another user runs
// the server as itself.
func (p *pod) own(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 0, int(*p.security.FSGroup)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// command is that of the container, with its user, its environment and further flags.
func (p *pod) command(flags ...string) *exec.Cmd {
	args := slices.Clone(p.container.Args)
	for i := range args {
		args[i] = p.inside.Replace(args[i])
	}
	cmd := exec.Command(sailplane, append(args, flags...)...)
	cmd.Env = []string{} // nil would be that of the test
	for _, variable := range p.container.Env {
		cmd.Env = append(cmd.Env, variable.Name+"="+variable.Value)
	}
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
			Uid: uint32(*p.security.RunAsUser), Gid: uint32(*p.security.RunAsGroup), Groups: []uint32{uint32(*p.security.FSGroup)},
		}}
	}
	return cmd
}

// podOf is run for a chart that was rendered.
func podOf(t *testing.T, objects rendered, secrets map[string]map[string]string) *pod {
	t.Helper()
	var set appsv1.StatefulSet
	objects.into(t, "StatefulSet", &set)
	return run(t, &set, configOf(t, objects), secrets)
}

// configOf is the ConfigMap with the configuration file.
func configOf(t *testing.T, objects rendered) *corev1.ConfigMap {
	t.Helper()
	for _, object := range objects {
		var config corev1.ConfigMap
		if object.GetKind() != "ConfigMap" {
			continue
		}
		rendered{object}.into(t, "ConfigMap", &config)
		if config.Data["server.yaml"] != "" {
			return &config
		}
	}
	t.Fatal("no ConfigMap has server.yaml")
	return nil
}
