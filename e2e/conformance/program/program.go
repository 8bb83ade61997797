// Package program runs the programs of this project against the API server of a suite.
package program

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	startLimit = 2 * time.Minute
	stopLimit  = 30 * time.Second
	poll       = 100 * time.Millisecond
)

// manifest is the path of a file of the project's deploy folder.
func manifest(path ...string) string {
	return filepath.Join(append([]string{os.Getenv("CONFORMANCE_MANIFESTS")}, path...)...)
}

// Gates are the feature gates of the pass, as the flag has them.
func Gates() string {
	return os.Getenv("CONFORMANCE_GATES")
}

// Registration is the deployed registration of the admission service.
func Registration() envtest.WebhookInstallOptions {
	return envtest.WebhookInstallOptions{Paths: []string{manifest("kustomize", "common", "webhook-configurations.yaml")}}
}

// CRDs are the deployed ones. Those of the Go module lack fields that the programs and the registration rely on.
func CRDs() envtest.CRDInstallOptions {
	return envtest.CRDInstallOptions{
		Paths:              []string{manifest("crds", "jobset.x-k8s.io_jobsets.yaml")},
		ErrorIfPathMissing: true,
	}
}

// StartController runs jobset-controller, and returns when it is ready. The caller stops it.
func StartController(environment *envtest.Environment) (stop func() error, err error) {
	return start("jobset-controller", environment.KubeConfig,
		gated("--leader-elect=false", "--metrics-listen=127.0.0.1:0")...)
}

// StartWebhook runs jobset-webhook where it is registered, and returns when it is ready. The caller stops it.
func StartWebhook(kubeconfig []byte, serving envtest.WebhookInstallOptions) (stop func() error, err error) {
	names := []string{"--namespace=default", "--extra-dns-name=" + serving.LocalServingHost}
	// It issues the certificate and writes its CA into the registration, as it does where it is deployed.
	stopCerts, err := start("jobset-certs", kubeconfig, names...)
	if err != nil {
		return nil, err
	}
	stopWebhook, err := start("jobset-webhook", kubeconfig, append(gated(
		"--listen="+net.JoinHostPort(serving.LocalServingHost, strconv.Itoa(serving.LocalServingPort)),
		"--agent-image=localhost/agent:test", "--drain-delay=0s", "--metrics-listen=127.0.0.1:0"), names...)...)
	if err != nil {
		return nil, errors.Join(err, stopCerts())
	}
	return func() error { return errors.Join(stopWebhook(), stopCerts()) }, nil
}

// gated adds the gates of the pass.
func gated(args ...string) []string {
	if Gates() == "" {
		return args
	}
	return append(args, "--feature-gates="+Gates())
}

// start runs the program of this name until it is stopped.
func start(name string, kubeconfig []byte, args ...string) (stop func() error, err error) {
	work := os.Getenv("CONFORMANCE_WORK")
	config := filepath.Join(work, name+".kubeconfig")
	if err := os.WriteFile(config, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(work, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	health, err := freeAddress()
	if err != nil {
		return nil, err
	}
	args = append(args, "--health-listen="+health)
	command := exec.Command(filepath.Join(os.Getenv("CONFORMANCE_PROGRAMS"), name), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+config)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	stop = func() error {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			return err
		case <-time.After(stopLimit):
			_ = command.Process.Kill()
			return fmt.Errorf("%s did not end within %s of SIGTERM", name, stopLimit)
		}
	}
	limit := time.After(startLimit)
	for {
		if isReady(health) {
			return stop, nil
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("%s ended (%v): %s", name, err, said)
		case <-limit:
			return nil, errors.Join(fmt.Errorf("%s is not ready after %s: see %s", name, startLimit, log.Name()), stop())
		case <-time.After(poll):
		}
	}
}

func isReady(address string) bool {
	client := http.Client{Timeout: time.Second}
	answer, err := client.Get("http://" + address + "/readyz")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)), nil
}
