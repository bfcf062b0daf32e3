#!/bin/bash
# Apache Kafka's broker, tools and Java client from Maven Central: the oracle, the baseline and a
# client in one. The adapter of the Java client is compiled here too.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"

install_kafka() {
  package java default-jdk-headless && package javac default-jdk-headless &&
    package mvn maven || return 1
  rm -rf "$foreign/kafka" && mkdir -p "$foreign/kafka" && cd "$foreign/kafka"
  cat >pom.xml <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>foreign</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId><version>$kafka_version</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId><version>$kafka_version</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId><version>$log4j_version</version></dependency>
  </dependencies>
</project>
POM
  mvn -q -B dependency:copy-dependencies -DoutputDirectory=libs || return 1
  # Foreign suites start Java programs by the script of Kafka's distribution, which Maven has not.
  mkdir -p bin && cat >bin/kafka-run-class.sh <<'RUN'
#!/bin/bash
exec java -cp "$CLASSPATH:$(dirname "$0")/../libs/*" "$@"
RUN
  chmod +x bin/kafka-run-class.sh
  cat >log4j2.yaml <<LOG
Configuration:
  Appenders: { Console: { name: STDERR, target: SYSTEM_ERR,
    PatternLayout: { pattern: "[%d] %p %m (%c)%n" } } }
  Loggers: { Root: { level: WARN, AppenderRef: { ref: STDERR } } }
LOG
}
once kafka "$kafka_version bin log4j $log4j_version" install_kafka

adapter="$here/clients/java/Adapter.java"
install_adapter() {
  mkdir -p "$foreign/java-adapter"
  javac -d "$foreign/java-adapter" -cp "$foreign/kafka/libs/*" "$adapter"
}
once java-adapter "$kafka_version $(sources "$adapter")" install_adapter
